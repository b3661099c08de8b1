"""Sign in and out, and what a person sets for themselves."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import PasswordChangeForm
from django.forms import ModelForm
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.tenants.models import User
from console.web.requests import ConsoleRequest, page


@method_decorator(login_not_required, name="dispatch")
class SignIn(auth_views.LoginView):
    template_name = "sign_in.html"
    redirect_authenticated_user = True

    def form_valid(self, form):  # type: ignore[no-untyped-def]
        response = super().form_valid(form)
        language = form.get_user().language
        if language:
            response.set_cookie(settings.LANGUAGE_COOKIE_NAME, language, samesite="Lax")
        return response


class ProfileForm(ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = User
        fields = ("first_name", "last_name", "email", "language", "theme")
        labels = {"language": gettext_lazy("Language"), "theme": gettext_lazy("Colours")}


def profile(request: ConsoleRequest) -> HttpResponse:
    form = ProfileForm(request.POST or None, instance=request.user)
    if request.method == "POST" and form.is_valid():
        user = form.save()
        messages.success(request, _("Your settings are saved."))
        response = redirect("web:profile")
        if user.language:
            response.set_cookie(settings.LANGUAGE_COOKIE_NAME, user.language, samesite="Lax")
        return response
    return page(
        request, "accounts/profile.html", {"form": form}, status=422 if form.errors else 200
    )


class ChangePassword(auth_views.PasswordChangeView):
    form_class = PasswordChangeForm
    template_name = "form_page.html"

    def get_context_data(self, **kwargs):  # type: ignore[no-untyped-def]
        extra = {
            "title": _("Change your password"),
            "submit": _("Change it"),
            "cancel": reverse("web:profile"),
            "page": {},
        }
        return {**super().get_context_data(**kwargs), **extra}

    def get_success_url(self) -> str:
        messages.success(self.request, _("Your password is changed."))
        return reverse("web:profile")
