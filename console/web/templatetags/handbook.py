"""The link from a page to what the handbook says of it."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse

from console.web.help.topics import topic_of

register = template.Library()


@register.simple_tag(takes_context=True)
def help_address(context: dict[str, Any]) -> str:
    """Of the page that is being rendered; empty if the handbook has nothing on it."""
    match = getattr(context.get("request"), "resolver_match", None)
    area = context.get("page", {}).get("area", "")
    topic = topic_of(match.url_name or "", area) if match else None
    if topic is None:
        return ""
    name, anchor = topic
    return reverse("web:help", args=[name]) + f"#{anchor}"
