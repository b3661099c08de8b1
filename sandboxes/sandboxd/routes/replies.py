"""Records as the control plane's JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast

from sandboxes.sandboxd.engines.base import Limits, TemplateRecord, Usage
from sandboxes.sandboxd.images import NamedSnapshot
from sandboxes.sandboxd.live import Sample
from sandboxes.sandboxd.records import SandboxRecord, rfc3339
from sandboxes.types import TemplateBuild, TemplateStatus
from sandboxes.wire.messages import (
    ENVD_VERSION,
    ListedSandbox,
    NetworkConfig,
    SandboxDetail,
    SandboxMetric,
    SandboxReply,
    SnapshotReply,
    TemplateBuildReply,
    TemplateReply,
)

__all__ = ["Replies", "build_reply", "metric_reply", "snapshot_reply"]

_BUILD_WORDS: dict[TemplateStatus, Literal["building", "ready", "error"]] = {
    TemplateStatus.BUILDING: "building",
    TemplateStatus.READY: "ready",
    TemplateStatus.FAILED: "error",
}

_CLIENT_ID = "sandboxd"
"""Deprecated and meaningless, but SDKs fail without it."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """`domain` is where sandboxes have host names of their own, None if nowhere."""

    limits: Limits
    disk_size_mb: int
    cpu_count: int
    domain: str | None = None

    @property
    def memory_mb(self) -> int:
        return (self.limits.memory_bytes or 0) // _MIB

    def sandbox(self, record: SandboxRecord) -> SandboxReply:
        reply: SandboxReply = {
            "templateID": record.image,
            "sandboxID": record.id,
            "clientID": _CLIENT_ID,
            "envdVersion": ENVD_VERSION,
            "trafficAccessToken": None if record.inbound else record.traffic_token,
            "domain": self.domain,
        }
        if record.template != record.image:
            reply["alias"] = record.template
        if record.access_token is not None:
            reply["envdAccessToken"] = record.access_token
        return reply

    def listed(self, record: SandboxRecord) -> ListedSandbox:
        reply: ListedSandbox = {
            "templateID": record.image,
            "sandboxID": record.id,
            "clientID": _CLIENT_ID,
            "startedAt": rfc3339(record.started_at),
            "endAt": rfc3339(record.end_at),
            "envdVersion": ENVD_VERSION,
            "cpuCount": self.cpu_count,
            "memoryMB": self.memory_mb,
            "diskSizeMB": self.disk_size_mb,
            "state": "paused" if record.paused else "running",
            "metadata": record.metadata,
        }
        if record.template != record.image:
            reply["alias"] = record.template
        return reply

    def detail(self, record: SandboxRecord) -> SandboxDetail:
        network: NetworkConfig = {
            "allowPublicTraffic": record.inbound,
            "allowOut": record.allow,
            "denyOut": record.deny,
        }
        if record.mask_request_host is not None:
            network["maskRequestHost"] = record.mask_request_host
        reply = cast(SandboxDetail, self.listed(record))
        reply["allowInternetAccess"] = record.outbound
        reply["domain"] = self.domain
        reply["network"] = network
        reply["lifecycle"] = {
            "autoResume": record.auto_resume,
            "onTimeout": "pause" if record.auto_pause else "kill",
        }
        if record.paused:
            reply["pauseMode"] = "full"
        if record.access_token is not None:
            reply["envdAccessToken"] = record.access_token
        return reply

    def template(self, record: TemplateRecord, spawn_count: int) -> TemplateReply:
        created = rfc3339(record.created_at.timestamp())
        return {
            "templateID": record.id,
            "buildID": record.id,
            "cpuCount": self.cpu_count,
            "memoryMB": self.memory_mb,
            "diskSizeMB": self.disk_size_mb,
            "public": False,
            "aliases": [record.name],
            "names": [record.name],
            "createdAt": created,
            "updatedAt": created,
            "createdBy": None,
            "lastSpawnedAt": None,
            "spawnCount": spawn_count,
            "buildCount": 1,
            "envdVersion": ENVD_VERSION,
            "buildStatus": "ready",
            "sizeBytes": record.size_bytes,
        }


def snapshot_reply(snapshot: NamedSnapshot) -> SnapshotReply:
    record = snapshot.record
    return {
        "snapshotID": record.id,
        "names": [snapshot.name] if snapshot.name else [],
        "createdAt": rfc3339(record.created_at.timestamp()),
        "sizeBytes": record.size_bytes,
        "sandboxID": record.source_sandbox_id,
    }


def build_reply(build: TemplateBuild) -> TemplateBuildReply:
    return {
        "name": build.name,
        "status": _BUILD_WORDS[build.status],
        "step": build.step,
        "fraction": build.fraction,
        "error": build.error,
        "templateID": build.template_id,
    }


def metric_reply(sample: Sample) -> SandboxMetric:
    usage: Usage = sample.usage
    return {
        "timestamp": datetime.fromtimestamp(int(sample.taken_at), UTC)
        .isoformat()
        .replace("+00:00", "Z"),
        "timestampUnix": int(sample.taken_at),
        "cpuCount": usage.cpu_count,
        "cpuUsedPct": usage.cpu_used_pct,
        "memUsed": usage.memory_used_bytes,
        "memTotal": usage.memory_total_bytes,
        "memCache": usage.memory_cache_bytes,
        "diskUsed": usage.disk_used_bytes,
        "diskTotal": usage.disk_total_bytes,
    }
