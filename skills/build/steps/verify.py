"""Look at the result as the session's user will find it."""

from __future__ import annotations

from skills.build.context import BuildContext, in_db
from skills.build.failures import BuildFailed
from skills.verify import verify

__all__ = ["run"]


async def run(context: BuildContext) -> None:
    report = await verify(context)
    for check in report.checks:
        mark = "ok" if check.ok else "FAILED" if check.fatal else "warning"
        context.log.say(f"{mark}: {check.skill}{': ' if check.skill else ''}{check.name}")
    await in_db(context.claim.update, report=report.to_json())
    if report.failed:
        first = report.failed[0]
        what = f"{first.skill}: {first.name}" if first.skill else first.name
        raise BuildFailed(
            "verify_failed",
            f"The result does not work for the session's user ({what}); the report says what to mend.",
            report=report.to_json(),
        )
