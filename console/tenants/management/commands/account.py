"""`manage.py account`: what only whoever runs the console may do to a person's account."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from console.audit.services import SYSTEM
from console.tenants import lockouts, two_step
from console.tenants.accounts import record_account
from console.tenants.models import User
from console.tenants.sign_ins import end_all

ACTIONS = {
    "reset-two-step": "turn off a lost second step; sign the person out everywhere",
    "sign-out": "sign the person out everywhere",
    "unlock": "forget wrong passwords, so that they may try again at once",
    "deactivate": "let them in no more, and sign them out everywhere; their roles stay",
    "activate": "let them in again",
}


class Command(BaseCommand):
    help = "Help, or stop, one person: " + "; ".join(
        f"{action}: {what}" for action, what in ACTIONS.items()
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=ACTIONS)
        parser.add_argument("username")

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        name = options["username"]
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"Nobody is called {name!r}; names are written as at sign-in.")
        act = getattr(self, options["action"].replace("-", "_"))
        self.stdout.write(act(user))

    def reset_two_step(self, user: User) -> str:
        if not two_step.remove(user=user, actor=SYSTEM, action="two_step.reset"):
            return f"{user} has no second step; nothing was changed."
        count = end_all(user=user, actor=SYSTEM)
        return (
            f"The second step of {user} is gone, and {count} sign-ins were ended: the password alone "
            "signs in now, so make sure that only they have it."
        )

    def sign_out(self, user: User) -> str:
        return f"{end_all(user=user, actor=SYSTEM)} sign-ins of {user} were ended."

    def unlock(self, user: User) -> str:
        if not lockouts.lift(user.get_username()):
            return f"{user} was not locked."
        record_account(actor=SYSTEM, user=user, action="account.unlock")
        return f"{user} may try again at once."

    def deactivate(self, user: User) -> str:
        self._set_active(user, active=False)
        count = end_all(user=user, actor=SYSTEM)
        return f"{user} can't sign in any more, and {count} sign-ins were ended."

    def activate(self, user: User) -> str:
        self._set_active(user, active=True)
        return f"{user} can sign in again."

    def _set_active(self, user: User, *, active: bool) -> None:
        user.is_active = active
        user.save(update_fields=["is_active"])
        action = "account.activate" if active else "account.deactivate"
        record_account(actor=SYSTEM, user=user, action=action)
