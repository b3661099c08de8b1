"""What a person sets for themselves: their profile and their password."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.tenants import sign_ins
from console.tenants.accounts import record_account
from console.tenants.models import User
from console.web import zones
from console.web.accounts.identity import is_password
from console.web.requests import ConsoleRequest, page

__all__ = ["change_password", "profile"]


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]
    time_zone = forms.ChoiceField(
        label=gettext_lazy("Time zone"),
        required=False,
        help_text=gettext_lazy("In which times are shown, and days begin and end."),
    )

    class Meta:
        model = User
        fields = ("first_name", "last_name", "email", "language", "theme", "time_zone")
        labels = {"language": gettext_lazy("Language"), "theme": gettext_lazy("Colours")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["time_zone"].choices = [("", _("As the browser")), *zones.choices()]  # type: ignore[attr-defined]
        self.fields["language"].choices = [("", _("As the browser")), *settings.LANGUAGES]  # type: ignore[attr-defined]


def profile(request: ConsoleRequest) -> HttpResponse:
    form = ProfileForm(request.POST or None, instance=request.user)
    if request.method == "POST" and form.is_valid():
        user = form.save()
        messages.success(request, _("Your settings are saved."))
        response = redirect("web:profile")
        if user.language:
            response.set_cookie(settings.LANGUAGE_COOKIE_NAME, user.language, samesite="Lax")
        else:
            response.delete_cookie(settings.LANGUAGE_COOKIE_NAME)
        return response
    return page(
        request,
        "accounts/profile.html",
        {"form": form, "zone_name": timezone.get_current_timezone_name()},
        tab="profile",
        status=422 if form.errors else 200,
    )


class ChangePasswordForm(PasswordChangeForm):
    """Wrong old passwords count as at sign-in, so that nobody guesses in a browser left open."""

    def __init__(self, request: ConsoleRequest) -> None:
        super().__init__(request.user, request.POST if request.method == "POST" else None)
        self.request = request

    def clean_old_password(self) -> str:
        password = str(self.cleaned_data["old_password"])
        if not is_password(self.request, password):
            raise forms.ValidationError(
                self.error_messages["password_incorrect"], code="password_incorrect"
            )
        return password


def change_password(request: ConsoleRequest) -> HttpResponse:
    """Ends every other sign-in of theirs."""
    form = ChangePasswordForm(request)
    if request.method == "POST" and form.is_valid():
        user, actor = form.save(), request.principal.actor
        update_session_auth_hash(request, user)
        sign_ins.note(request, user)
        record_account(actor=actor, user=user, action="account.password")
        sign_ins.end_all(user=user, actor=actor, keep=request.session.session_key)
        messages.success(
            request, _("Your password is changed, and every other browser is signed out.")
        )
        return redirect("web:password")
    return page(
        request,
        "accounts/password.html",
        {"form": form},
        tab="password",
        status=422 if form.errors else 200,
    )
