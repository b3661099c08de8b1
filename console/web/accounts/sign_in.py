"""Signing in: the password, and for those who have it the second step."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from console.audit.models import Outcome
from console.tenants import lockouts, sign_ins, two_step
from console.tenants.accounts import record_account
from console.tenants.models import User
from console.web.accounts import pending
from console.web.accounts.lockout import locked_page
from console.web.requests import actor_of

__all__ = ["SignIn", "sign_in_code"]


@method_decorator(login_not_required, name="dispatch")
class SignIn(auth_views.LoginView):
    """The first step. The password alone signs in only those who have no second one."""

    template_name = "sign_in.html"
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        assert isinstance(user, User)  # noqa: S101 (AUTH_USER_MODEL)
        if user.has_two_step():
            pending.remember(self.request, user, next_url=self.get_redirect_url())
            return redirect("web:sign-in-code")
        return _sign_in(self.request, user, self.get_success_url(), second_step=False)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        username = form.cleaned_data.get("username")
        if username and form.cleaned_data.get("password"):
            _record_failure(self.request, username)
        answer = super().form_invalid(form)
        answer.status_code = 422
        return answer


class CodeForm(forms.Form):
    code = forms.CharField(
        label=gettext_lazy("Code from your app"),
        required=False,
        max_length=40,
        widget=forms.TextInput(
            attrs={"inputmode": "numeric", "autocomplete": "one-time-code", "autofocus": True}
        ),
    )
    recovery_code = forms.CharField(
        label=gettext_lazy("Recovery code"),
        required=False,
        max_length=40,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )

    def clean(self) -> dict[str, str]:
        data = super().clean() or {}
        if not data.get("code") and not data.get("recovery_code"):
            raise forms.ValidationError(_("Type the code that your app shows, or a recovery code."))
        return data


@login_not_required
@never_cache
def sign_in_code(request: HttpRequest) -> HttpResponse:
    """The second step, for whoever gave the right password in this browser a moment ago."""
    found = pending.of(request)
    if found is None:
        messages.info(request, _("Sign in with your password first."))
        return redirect("web:sign-in")
    half, user = found
    form = CodeForm(request.POST or None)
    retry_after_s: float | None = None
    if request.method == "POST" and form.is_valid():
        if lockouts.is_locked(request, user.get_username()):
            return locked_page(request, user.get_username())
        code = form.cleaned_data["code"] or form.cleaned_data["recovery_code"]
        try:
            two_step.check_code(user=user, code=code, actor=actor_of(request, user))
        except two_step.CodeRefused as refusal:
            retry_after_s = refusal.retry_after_s
            if retry_after_s is None and lockouts.count_failure(request, user.get_username()):
                pending.forget(request)
                _record_lock(request, user)
            form.add_error(None, refusal.message)
        else:
            pending.forget(request)
            user.backend = half.backend
            url = half.next or str(settings.LOGIN_REDIRECT_URL)
            return _sign_in(request, user, url, second_step=True)
    status = 200 if not form.errors else 422 if retry_after_s is None else 429
    context = {"form": form, "username": user.get_username()}
    answer = render(request, "accounts/code.html", context, status=status)
    if retry_after_s is not None:
        answer.headers["Retry-After"] = str(int(retry_after_s))
    return answer


def _sign_in(request: HttpRequest, user: User, url: str, *, second_step: bool) -> HttpResponse:
    login(request, user)
    sign_ins.note(request, user)
    record_account(
        actor=actor_of(request, user),
        user=user,
        action="account.sign_in",
        details={"two_step": second_step},
    )
    answer = redirect(url)
    if user.language:
        answer.set_cookie(settings.LANGUAGE_COOKIE_NAME, user.language, samesite="Lax")
    return answer


def _record_failure(request: HttpRequest, username: str) -> None:
    """A name that nobody has is not written down: it may be a password in the wrong field."""
    user = User.objects.filter(username=username).first()
    failures = getattr(request, "axes_failures_since_start", None)
    locked = getattr(request, "axes_locked_out", False)
    if locked and failures is None:
        return  # It was locked before: nothing was tried.
    record_account(
        actor=actor_of(request, user),
        user=user,
        action="account.sign_in",
        outcome=Outcome.FAILED,
    )
    if locked:
        _record_lock(request, user)


def _record_lock(request: HttpRequest, user: User | None) -> None:
    record_account(
        actor=actor_of(request, user),
        user=user,
        action="account.lock",
        outcome=Outcome.DENIED,
        details={"minutes": settings.AXES_COOLOFF_TIME.total_seconds() / 60},
    )
