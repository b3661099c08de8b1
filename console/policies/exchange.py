"""A policy as JSON, to carry from one space to another. docs/space-owner.md tells the format."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.utils.translation import gettext as _

from console.policies.drafts import Draft
from sandboxes.errors import InvalidRequest
from sandboxes.network import NetworkPolicy

__all__ = ["MAX_BYTES", "dump", "load"]

MAX_BYTES = 1024 * 1024
_SWITCHES = ("outbound", "inbound")
_LISTS = ("allow", "deny")


def dump(policy: NetworkPolicy) -> str:
    return json.dumps(asdict(policy), indent=2) + "\n"


def load(text: str | bytes) -> Draft:
    """What `dump` wrote, or a person did; the entries are not judged yet.

    Both switches are asked for, since a policy never inherits one. Raises InvalidRequest that names
    every field that is unknown, missing or of another kind.
    """
    fields = _object(text)
    known = (*_SWITCHES, *_LISTS)
    if unknown := [name for name in fields if name not in known]:
        raise InvalidRequest(
            _("A policy has no field called %(names)s; it has %(known)s.")
            % {"names": ", ".join(name[:60] for name in unknown[:10]), "known": ", ".join(known)}
        )
    problems = [
        _("“%(name)s” must be there, and be true or false.") % {"name": name}
        for name in _SWITCHES
        if not isinstance(fields.get(name), bool)
    ]
    problems += [
        _("“%(name)s” must be a list of texts.") % {"name": name}
        for name in _LISTS
        if not _is_texts(fields.get(name, []))
    ]
    if problems:
        raise InvalidRequest(" ".join(problems))
    return Draft(
        outbound=fields["outbound"],
        inbound=fields["inbound"],
        allow=tuple(fields.get("allow", ())),
        deny=tuple(fields.get("deny", ())),
    )


def _object(text: str | bytes) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise InvalidRequest(_("The text is larger than 1 MiB; a policy is much smaller."))
    try:
        found = json.loads(text, object_pairs_hook=_without_repetition)
    except RecursionError:
        found = None
    except ValueError as error:
        raise InvalidRequest(_("This is no JSON: %(why)s.") % {"why": error}) from None
    if not isinstance(found, dict):
        raise InvalidRequest(
            _("The JSON must be one object with outbound, inbound, allow and deny.")
        )
    return found


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(_("The field “%(name)s” is there twice.") % {"name": twice[:60]})
    return found


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
