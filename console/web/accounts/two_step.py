"""Setting up two-step sign-in, its recovery codes, and turning it off."""

from __future__ import annotations

from base64 import b32encode
from urllib.parse import urlsplit

import qrcode
from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST
from qrcode.image.svg import SvgPathImage

from console.tenants import sign_ins, two_step
from console.tenants.account_models import TotpDevice
from console.tenants.models import Tenant
from console.web.accounts.identity import ProofForm, is_password
from console.web.requests import ConsoleRequest, page

__all__ = ["confirm", "new_codes", "show", "start", "stop"]


class ConfirmForm(forms.Form):
    code = forms.CharField(
        label=gettext_lazy("Code that the app shows now"),
        max_length=12,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "one-time-code"}),
    )
    password = forms.CharField(
        label=gettext_lazy("Your password"),
        max_length=200,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )


@never_cache
def show(request: ConsoleRequest) -> HttpResponse:
    return _page(request)


@require_POST
def start(request: ConsoleRequest) -> HttpResponse:
    two_step.start(user=request.user)
    return redirect("web:two-step")


@require_POST
@never_cache
def confirm(request: ConsoleRequest) -> HttpResponse:
    """Answers with the recovery codes themselves, once: they are kept nowhere to be shown again."""
    form = ConfirmForm(request.POST)
    if form.is_valid() and not is_password(request, form.cleaned_data["password"]):
        form.add_error("password", _("That is not your password."))
    if not form.is_valid():
        return _page(request, confirm_form=form)
    user = request.user
    try:
        codes = two_step.confirm(
            user=user, code=form.cleaned_data["code"], actor=request.principal.actor
        )
    except two_step.CodeRefused as refusal:
        form.add_error("code", refusal.message)
        return _page(request, confirm_form=form)
    request.session.cycle_key()
    sign_ins.note(request, user)
    ended = sign_ins.end_all(
        user=user, actor=request.principal.actor, keep=request.session.session_key
    )
    return _codes_page(request, codes, first=True, ended=ended)


@require_POST
@never_cache
def new_codes(request: ConsoleRequest) -> HttpResponse:
    form = ProofForm(request)
    if not form.is_valid():
        return _page(request, codes_form=form)
    codes = two_step.make_recovery_codes(user=request.user, actor=request.principal.actor)
    return _codes_page(request, codes, first=False)


@require_POST
def stop(request: ConsoleRequest) -> HttpResponse:
    """Turn it off. What was started and not confirmed needs no proof to be forgotten."""
    if request.user.has_two_step():
        form = ProofForm(request)
        if not form.is_valid():
            return _page(request, stop_form=form)
    if two_step.remove(user=request.user, actor=request.principal.actor):
        messages.success(
            request, _("Two-step sign-in is off; your password alone signs you in now.")
        )
    return redirect("web:two-step")


def _page(
    request: ConsoleRequest,
    *,
    confirm_form: ConfirmForm | None = None,
    codes_form: ProofForm | None = None,
    stop_form: ProofForm | None = None,
) -> HttpResponse:
    user = request.user
    device = two_step.device_of(user)
    context: dict[str, object] = {
        "device": device,
        "owed": request.principal.owes_two_step,
        "required_by": Tenant.objects.filter(
            memberships__user=user, two_step_required=True
        ).distinct(),
        "codes_left": user.recovery_codes.filter(used_at=None).count(),
        "codes_made": two_step.RECOVERY_CODES,
        "confirm_form": confirm_form or ConfirmForm(),
        "codes_form": codes_form,
        "stop_form": stop_form,
    }
    if device is not None and not device.confirmed:
        context |= _enrolment(request, device)
    failed = any(form is not None for form in (confirm_form, codes_form, stop_form))
    return page(
        request, "accounts/two_step.html", context, tab="two-step", status=422 if failed else 200
    )


def _codes_page(
    request: ConsoleRequest, codes: list[str], *, first: bool, ended: int = 0
) -> HttpResponse:
    context = {"codes": codes, "first": first, "ended": ended}
    return page(request, "accounts/recovery_codes.html", context, tab="two-step")


def _enrolment(request: ConsoleRequest, device: TotpDevice) -> dict[str, object]:
    secret = b32encode(device.key).decode()
    host = urlsplit(f"//{request.get_host()}").hostname or ""
    return {
        "qr": _svg(two_step.enrolment_url(device, host=host)),
        "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
    }


def _svg(text: str) -> SafeString:
    code = qrcode.QRCode(image_factory=SvgPathImage, border=2)
    code.add_data(text)
    drawn: str = code.make_image().to_string(encoding="unicode")
    return mark_safe(drawn)  # noqa: S308 (shapes only; the text is drawn, not written)
