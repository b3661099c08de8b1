"""What somebody asked to be done to many rows of a list, and what became of each."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from skills.ids import ID_LENGTH, new_id

if TYPE_CHECKING:
    from console.tenants.models import User


class BulkRunQuerySet(models.QuerySet["BulkRun"]):
    def untended(self, *, for_: timedelta = timedelta(0)) -> BulkRunQuerySet:
        """Begun, not over, and nobody works on them."""
        latest = timezone.now() - for_
        return self.filter(
            Q(taken_until=None, started_at__lte=latest) | Q(taken_until__lte=latest),
            finished_at=None,
        )


class BulkRun(models.Model):
    """One action on rows that were frozen when they were chosen. Nothing happens before it is confirmed
    (`started_at`)."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH, default=partial(new_id, "blk"))
    user: models.ForeignKey[User, User] = models.ForeignKey(
        "tenants.User", models.CASCADE, related_name="+"
    )
    list_name = models.CharField(max_length=20)
    action = models.CharField(max_length=40)
    query = models.TextField(blank=True)
    """Of the list that the rows were chosen in."""
    left_out = models.PositiveIntegerField(default=0)
    """Rows that matched beyond what one run takes."""
    address = models.GenericIPAddressField(null=True)
    language = models.CharField(max_length=10, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    taken_until = models.DateTimeField(null=True)
    """A worker has it until then, unless it dies."""
    finished_at = models.DateTimeField(null=True)

    objects = BulkRunQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.action} {self.pk}"

    def counts(self) -> dict[str, int]:
        """Rows by outcome, `all` of them, and those that are `over`."""
        found = Counter(
            dict(self.items.order_by().values_list("outcome").annotate(number=models.Count("pk")))
        )
        return {
            **{outcome.name.lower(): found[outcome] for outcome in BulkOutcome},
            "all": found.total(),
            "over": found.total() - found[BulkOutcome.WAITING],
        }


class BulkOutcome(models.TextChoices):
    WAITING = "waiting", _("Waiting")
    DONE = "done", _("Done")
    REFUSED = "refused", _("Refused")
    FAILED = "failed", _("Failed")
    STOPPED = "stopped", _("Stopped before it")


class BulkItem(models.Model):
    """One row of a run."""

    id: models.BigAutoField[int, int] = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(BulkRun, models.CASCADE, related_name="items")
    target = models.CharField(max_length=ID_LENGTH)
    label = models.CharField(max_length=256)
    """What the row was called when it was chosen."""
    outcome = models.CharField(max_length=8, choices=BulkOutcome, default=BulkOutcome.WAITING)
    reason = models.CharField(max_length=500, blank=True)
    """Why it was not done, or a remark on how it was; as a sentence."""
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["run", "outcome", "id"])]

    def __str__(self) -> str:
        return self.label
