"""What templates need beyond Django's own: badges, times and durations."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

register = template.Library()

_TONES = {
    "good": {"active", "succeeded", "ready", "ok", "done"},
    "info": {"running", "building", "queued"},
    "warn": {"paused", "superseded", "cancelled", "stale", "skipped", "stopped", "warning"},
    "bad": {"failed", "broken", "lost", "denied", "refused", "error", "critical"},
}
_BUSY = {"running", "building", "queued"}


@register.simple_tag
def badge(value: str, label: str = "") -> SafeString:
    """A state in words and colour: `{% badge build.state build.get_state_display %}`."""
    tone = next((tone for tone, values in _TONES.items() if value in values), "")
    busy = " busy" if value in _BUSY else ""
    return format_html('<span class="badge {}{}">{}</span>', tone, busy, label or value)


@register.filter
def ago(value: datetime | None) -> SafeString | str:
    """“3 hours ago”, and on a closer look the time in the reader's zone."""
    if value is None:
        return "—"
    now = timezone.now()
    if (now - value).total_seconds() < 60:
        words = _("just now")
    else:
        words = _("%(time)s ago") % {"time": timesince(value, now, depth=1)}
    exact = f"{date_format(timezone.localtime(value), 'DATETIME_FORMAT')} ({timezone.get_current_timezone_name()})"
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), exact, words)


@register.filter
def took(start: datetime | None, end: datetime | None = None) -> str:
    """The time between two moments, or since the first: “4.2 s”, “3 min 10 s”."""
    if start is None:
        return ""
    return seconds(((end or timezone.now()) - start).total_seconds())


@register.filter
def seconds(value: float) -> str:
    if value < 60:
        return _("%(seconds).1f s") % {"seconds": value}
    minutes, rest = divmod(round(value), 60)
    if minutes >= 60:
        return _("%(hours)d h %(minutes)d min") % {"hours": minutes // 60, "minutes": minutes % 60}
    return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": rest}
