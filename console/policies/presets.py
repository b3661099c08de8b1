"""Policies to begin with. A preset says nothing of inbound: that switch stays as it was."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from console.policies.drafts import Draft
from sandboxes.network import NetworkPolicy

__all__ = ["PRESETS", "Preset", "matching"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    key: str
    label: Promise | str
    outbound: bool
    allow: tuple[str, ...] = ()
    """Sorted, as a policy has them."""

    def draft(self, *, inbound: bool) -> Draft:
        return Draft(outbound=self.outbound, inbound=inbound, allow=self.allow)


PRESETS = {
    preset.key: preset
    for preset in (
        Preset(key="open", label=_("Open"), outbound=True),
        Preset(
            key="registries",
            label=_("Registries only"),
            outbound=False,
            allow=(
                "deb.debian.org",
                "files.pythonhosted.org",
                "pypi.org",
                "registry.npmjs.org",
                "security.debian.org",
            ),
        ),
        Preset(key="closed", label=_("Closed"), outbound=False),
    )
}


def matching(policy: NetworkPolicy) -> str:
    """The key of the preset that says the same of outbound, or "" for rules of one's own."""
    for preset in PRESETS.values():
        if (preset.outbound, preset.allow, ()) == (policy.outbound, policy.allow, policy.deny):
            return preset.key
    return ""
