"""Ask a signed-in person once more who they are, before something that only they may do."""

from __future__ import annotations

from typing import cast

from django import forms
from django.contrib.auth import authenticate
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.tenants import lockouts, two_step
from console.tenants.models import User
from console.web.requests import ConsoleRequest, actor_of

__all__ = ["ProofForm", "is_password"]


def is_password(request: ConsoleRequest, password: str) -> bool:
    """Wrong ones count as at sign-in: after too many of them the answer is a page that says how long to
    wait (django-axes), whatever the view would have said."""
    found = authenticate(request, username=request.user.get_username(), password=password)
    return found is not None and found.pk == request.user.pk


class ProofForm(forms.Form):
    """One field: the password, or a code of the app."""

    proof = forms.CharField(
        label=gettext_lazy("Your password, or a code from your app"),
        max_length=200,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )

    def __init__(self, request: ConsoleRequest) -> None:
        super().__init__(request.POST if request.method == "POST" else None)
        self.request = request

    def clean_proof(self) -> str:
        proof = cast(str, self.cleaned_data["proof"])
        user = self.request.user
        if proof.strip().isdigit() and user.has_two_step():
            self._check_code(user, proof)
        elif not is_password(self.request, proof):
            raise forms.ValidationError(_("That is not right; nothing was changed."))
        return proof

    def _check_code(self, user: User, code: str) -> None:
        try:
            two_step.check_code(user=user, code=code, actor=actor_of(self.request, user))
        except two_step.CodeRefused as refusal:
            if refusal.retry_after_s is None:
                lockouts.count_failure(self.request, user.get_username())
            raise forms.ValidationError(refusal.message) from None
