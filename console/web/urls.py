"""Routes of the pages."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import path

from console.web.accounts import sign_in, two_step
from console.web.accounts import sign_ins as own_sign_ins
from console.web.accounts import views as accounts
from console.web.audit import lists as audit_list
from console.web.backends import cordon as backend_cordon
from console.web.backends import editing as backend_editing
from console.web.backends import images as backend_images
from console.web.backends import lists as backend_list
from console.web.backends import verifications
from console.web.backends import views as backends
from console.web.builds import lists as build_list
from console.web.builds import views as builds
from console.web.bulk import views as bulk
from console.web.catalog import lists as catalog_list
from console.web.catalog import views as catalog
from console.web.help import views as handbook
from console.web.keys import views as keys
from console.web.members import security as member_security
from console.web.members import views as members
from console.web.overview import views as overview
from console.web.policies import hosts as policy_hosts
from console.web.policies import views as policies
from console.web.reconcile import lists as reconcile_list
from console.web.reconcile import views as reconcile
from console.web.releases import lists as release_list
from console.web.releases import views as releases
from console.web.sessions import commands as session_commands
from console.web.sessions import files as session_files
from console.web.sessions import lists as session_list
from console.web.sessions import views as sessions
from console.web.spaces import lists as space_list
from console.web.spaces import removal as space_removal
from console.web.spaces import views as spaces

app_name = "web"
urlpatterns = [
    path("", overview.overview, name="overview"),
    path("first-steps/hide/", overview.hide_first_steps, name="hide-first-steps"),
    path("sign-in/", sign_in.SignIn.as_view(), name="sign-in"),
    path("sign-in/code/", sign_in.sign_in_code, name="sign-in-code"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("me/", accounts.profile, name="profile"),
    path("me/password/", accounts.change_password, name="password"),
    path("me/two-step/", two_step.show, name="two-step"),
    path("me/two-step/start/", two_step.start, name="start-two-step"),
    path("me/two-step/confirm/", two_step.confirm, name="confirm-two-step"),
    path("me/two-step/codes/", two_step.new_codes, name="new-recovery-codes"),
    path("me/two-step/stop/", two_step.stop, name="stop-two-step"),
    path("me/sign-ins/", own_sign_ins.listed, name="sign-ins"),
    path("me/sign-ins/end-others/", own_sign_ins.end_others, name="end-other-sign-ins"),
    path("me/sign-ins/<str:sign_in_id>/end/", own_sign_ins.end, name="end-sign-in"),
    path("spaces/", space_list.spaces, name="spaces"),
    path("spaces/new/", spaces.new_space, name="new-space"),
    path("spaces/<str:space_id>/", overview.space, name="space"),
    path("spaces/<str:space_id>/skills/", spaces.skills, name="space-skills"),
    path("spaces/<str:space_id>/network/", policies.network, name="network"),
    path("spaces/<str:space_id>/network/apply/", policies.apply, name="network-apply"),
    path("spaces/<str:space_id>/network/test/", policy_hosts.test_host, name="network-test"),
    path("spaces/<str:space_id>/network/import/", policies.take, name="network-import"),
    path("spaces/<str:space_id>/network/export/", policies.export, name="network-export"),
    path("spaces/<str:space_id>/install/", builds.install, name="install"),
    path("spaces/<str:space_id>/uninstall/", builds.uninstall, name="uninstall"),
    path("spaces/<str:space_id>/builds/", build_list.builds, name="space-builds"),
    path("spaces/<str:space_id>/releases/", release_list.releases, name="space-releases"),
    path("spaces/<str:space_id>/releases/compare/", releases.compare, name="compare-releases"),
    path("spaces/<str:space_id>/releases/promote/", releases.promote, name="promote"),
    path("spaces/<str:space_id>/releases/withdraw/", releases.withdraw, name="withdraw"),
    path("spaces/<str:space_id>/compact/", releases.compact, name="compact"),
    path("spaces/<str:space_id>/settings/", spaces.edit_space, name="space-settings"),
    path("spaces/<str:space_id>/delete/", space_removal.delete, name="delete-space"),
    path("spaces/<str:space_id>/sessions/", session_list.sessions, name="space-sessions"),
    path("spaces/<str:space_id>/sessions/start/", sessions.start, name="start-session"),
    path("catalog/", catalog_list.catalog, name="catalog"),
    path("catalog/upload/", catalog.upload, name="upload"),
    path("catalog/<str:skill_id>/", catalog.version, name="skill"),
    path("catalog/<str:skill_id>/archive/", catalog.archive, name="archive"),
    path("catalog/<str:skill_id>/<int:number>/", catalog.version, name="version"),
    path("catalog/<str:skill_id>/<int:number>/plan/", catalog.edit_plan, name="edit-plan"),
    path("catalog/<str:skill_id>/<int:number>/plans/", catalog.plan_history, name="plans"),
    path("builds/", build_list.builds, name="builds"),
    path("builds/<str:build_id>/", builds.build, name="build"),
    path("builds/<str:build_id>/cancel/", builds.cancel, name="cancel-build"),
    path("builds/<str:build_id>/take-up/", builds.take_up, name="take-up-build"),
    path("builds/<str:build_id>/retry/", builds.retry, name="retry-build"),
    path("builds/<str:build_id>/hints/<int:index>/", builds.apply_hint, name="apply-hint"),
    path("builds/<str:build_id>/log/", builds.log_text, name="build-log"),
    path("builds/<str:build_id>/log/events/", builds.log_events, name="build-log-events"),
    path("releases/", release_list.releases, name="releases"),
    path("releases/<str:release_id>/", releases.release, name="release"),
    path("releases/<str:release_id>/roll-out/", releases.roll_out, name="roll-out"),
    path("releases/<str:release_id>/roll-back/", releases.roll_back, name="roll-back"),
    path("releases/<str:release_id>/rebuild/", releases.rebuild, name="rebuild"),
    path("releases/<str:release_id>/delete/", releases.delete, name="delete-release"),
    path("sessions/", session_list.sessions, name="sessions"),
    path("sessions/<str:pk>/", sessions.session, name="session"),
    path("sessions/<str:pk>/run/", session_commands.run, name="run"),
    path("sessions/<str:pk>/run/stream/", session_commands.stream, name="run-stream"),
    path("sessions/<str:pk>/inputs/remove/", session_files.remove_input, name="remove-input"),
    path("sessions/<str:pk>/file/", session_files.show, name="show-file"),
    path("sessions/<str:pk>/file/picture/", session_files.picture, name="show-picture"),
    path("sessions/<str:pk>/file/download/", session_files.download, name="download"),
    path("sessions/<str:pk>/file/rename/", session_files.rename, name="rename-file"),
    path("sessions/<str:pk>/file/remove/", session_files.remove, name="remove-file"),
    path("sessions/<str:pk>/files/upload/", session_files.upload, name="upload-files"),
    path("sessions/<str:pk>/files/folder/", session_files.new_folder, name="new-folder"),
    path("sessions/<str:pk>/files/zip/", session_files.download_all, name="download-all"),
    path("sessions/<str:pk>/pause/", sessions.pause, name="pause-session"),
    path("sessions/<str:pk>/resume/", sessions.resume, name="resume-session"),
    path("sessions/<str:pk>/rebuild/", sessions.rebuild, name="rebuild-session"),
    path("sessions/<str:pk>/destroy/", sessions.destroy, name="destroy-session"),
    path("bulk/", bulk.choose, name="bulk"),
    path("bulk/<str:run_id>/", bulk.run, name="bulk-run"),
    path("bulk/<str:run_id>/start/", bulk.start, name="bulk-start"),
    path("bulk/<str:run_id>/stop/", bulk.stop, name="bulk-stop"),
    path("bulk/<str:run_id>/retry/", bulk.retry, name="bulk-retry"),
    path("help/", handbook.index, name="help-index"),
    path("help/images/<str:name>", handbook.image, name="help-image"),
    path("help/<path:name>/", handbook.show, name="help"),
    path("audit/", audit_list.audit, name="audit"),
    path("keys/", keys.keys, name="keys"),
    path("keys/<str:key_id>/revoke/", keys.revoke, name="revoke-key"),
    path("members/", members.members, name="members"),
    path("members/<int:member_id>/role/", members.change, name="change-member"),
    path("members/<int:member_id>/remove/", members.remove, name="remove-member"),
    path("members/sign-in/", member_security.people, name="member-security"),
    path("members/sign-in/<int:user_id>/end/", member_security.sign_out, name="sign-out-member"),
    path("members/sign-in/<int:user_id>/unlock/", member_security.unlock, name="unlock-member"),
    path("members/two-step/<str:tenant_id>/", member_security.require, name="require-two-step"),
    path("backends/", backend_list.backends, name="backends"),
    path("backends/new/", backend_editing.new, name="new-backend"),
    path("backends/<str:backend_id>/", backends.backend, name="backend"),
    path("backends/<str:backend_id>/edit/", backend_editing.edit, name="edit-backend"),
    path(
        "backends/<str:backend_id>/edit/confirm/", backend_editing.confirm, name="confirm-backend"
    ),
    path("backends/<str:backend_id>/delete/", backend_editing.delete, name="delete-backend"),
    path(
        "backends/<str:backend_id>/accounts/<str:former_id>/give-up/",
        backend_editing.give_up,
        name="give-up-account",
    ),
    path("backends/<str:backend_id>/images/", backend_images.images, name="backend-images"),
    path("backends/<str:backend_id>/images/build/", backend_images.build, name="build-template"),
    path("backends/<str:backend_id>/images/delete/", backend_images.delete, name="delete-template"),
    path("backends/<str:backend_id>/verify/", verifications.verify, name="verify-backend"),
    path("verifications/<str:verification_id>/", verifications.report, name="verification"),
    path("backends/<str:backend_id>/cordon/", backend_cordon.cordon, name="cordon-backend"),
    path("backends/<str:backend_id>/uncordon/", backend_cordon.uncordon, name="uncordon-backend"),
    path("backends/<str:backend_id>/check/", backends.check, name="check-backend"),
    path("reconcile/", reconcile_list.reports, name="reconcile"),
    path("reconcile/<str:report_id>/", reconcile.report, name="reconcile-report"),
    path("backends/<str:backend_id>/reconcile/", reconcile.run, name="run-reconcile"),
]
