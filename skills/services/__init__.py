"""The use cases of the catalog, of builds and of releases.

Keyword-only functions, one transaction each, called alike by pages, the API, commands and tasks.
They raise `skills.package.PackageRefused` and `RootChoiceNeeded` for packages, and of
`sandboxes.errors` InvalidRequest and Conflict, whose text is one sentence for the person who acts.
Who may act is the caller's to decide; what happened is announced to `skills.ports.on_event`.
"""

from skills.services.builds import (
    apply_hint,
    cancel_build,
    compact,
    install,
    rebuild,
    request_build,
    retry_build,
    uninstall,
    upgrade,
    wanted_versions,
)
from skills.services.catalog import add_package, archive_skill, open_package, save_plan
from skills.services.compare import diff_releases
from skills.services.figures import BuildFigures, BuildPeriod, build_figures
from skills.services.releases import (
    check_release,
    delete_release,
    promote_candidate,
    roll_back,
    set_rollout,
    start_rollout,
    withdraw_candidate,
)
from skills.services.stuck import Stuck, stuck, take_up

__all__ = [
    "BuildFigures",
    "BuildPeriod",
    "Stuck",
    "add_package",
    "apply_hint",
    "archive_skill",
    "build_figures",
    "cancel_build",
    "check_release",
    "compact",
    "delete_release",
    "diff_releases",
    "install",
    "open_package",
    "promote_candidate",
    "rebuild",
    "request_build",
    "retry_build",
    "roll_back",
    "save_plan",
    "set_rollout",
    "start_rollout",
    "stuck",
    "take_up",
    "uninstall",
    "upgrade",
    "wanted_versions",
    "withdraw_candidate",
]
