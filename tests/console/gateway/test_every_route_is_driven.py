"""The table of routes and of the tests that drive them: a new route asks for its line, and so for its test."""

from __future__ import annotations

import ast
from pathlib import Path

from console.gateway.catalog import catalog_routes
from console.gateway.control import sandbox_routes
from sandboxes.wire import proto
from sandboxes.wire.server.address import ENVD_PATHS

SDK = "test_official_sdk"
REST = "test_rest_of_the_routes"
KEYS = "test_keys_open_one_space"
HOSTS = "test_host_names"

DRIVEN = {
    "POST /sandboxes": f"{KEYS}::test_both_versions_of_create_and_connect",
    "POST /v2/sandboxes": f"{SDK}::test_commands_run_stream_and_fail",
    "GET /sandboxes": f"{KEYS}::test_both_versions_of_create_and_connect",
    "GET /v2/sandboxes": f"{SDK}::test_lists_have_pages_and_filters",
    "GET /sandboxes/metrics": f"{REST}::test_metrics_of_one_and_of_many",
    "GET /sandboxes/{id}": f"{SDK}::test_info_timeout_and_metrics",
    "DELETE /sandboxes/{id}": f"{SDK}::test_kill_ends_what_runs",
    "POST /sandboxes/{id}/connect": f"{KEYS}::test_both_versions_of_create_and_connect",
    "POST /v2/sandboxes/{id}/connect": f"{SDK}::test_pause_and_connect",
    "POST /sandboxes/{id}/pause": f"{SDK}::test_pause_and_connect",
    "POST /sandboxes/{id}/resume": f"{KEYS}::test_both_versions_of_create_and_connect",
    "POST /sandboxes/{id}/timeout": f"{SDK}::test_info_timeout_and_metrics",
    "POST /sandboxes/{id}/refreshes": f"{REST}::test_a_refresh_extends_and_never_shortens",
    "PUT /sandboxes/{id}/network": f"{SDK}::test_network_is_updated_within_the_policy",
    "GET /sandboxes/{id}/metrics": f"{REST}::test_metrics_of_one_and_of_many",
    "POST /sandboxes/{id}/snapshots": f"{SDK}::test_snapshots_belong_to_the_space",
    "GET /snapshots": f"{REST}::test_snapshots_have_pages_and_names",
    "GET /templates": f"{HOSTS}::test_a_base_template_and_no_release",
    "GET /v2/templates": f"{REST}::test_templates_and_capabilities",
    "GET /templates/aliases/{alias:path}": f"{HOSTS}::test_a_base_template_and_no_release",
    "DELETE /templates/{id:path}": f"{REST}::test_snapshots_have_pages_and_names",
    "GET /sandboxd/engine": f"{REST}::test_templates_and_capabilities",
    # envd
    "/process.Process/List": f"{SDK}::test_stdin_connect_list_and_kill_of_processes",
    "/process.Process/Start": f"{SDK}::test_commands_run_stream_and_fail",
    "/process.Process/Connect": f"{SDK}::test_stdin_connect_list_and_kill_of_processes",
    "/process.Process/Update": f"{REST}::test_a_terminal_is_resized_left_and_taken_up_again",
    "/process.Process/StreamInput": f"{REST}::test_input_as_a_stream_and_its_end",
    "/process.Process/SendInput": f"{SDK}::test_stdin_connect_list_and_kill_of_processes",
    "/process.Process/SendSignal": f"{REST}::test_a_signal_that_a_program_may_catch",
    "/process.Process/CloseStdin": f"{REST}::test_input_as_a_stream_and_its_end",
    "/filesystem.Filesystem/Stat": f"{SDK}::test_files_in_every_form",
    "/filesystem.Filesystem/MakeDir": f"{SDK}::test_files_in_every_form",
    "/filesystem.Filesystem/Move": f"{SDK}::test_files_in_every_form",
    "/filesystem.Filesystem/ListDir": f"{SDK}::test_files_in_every_form",
    "/filesystem.Filesystem/Remove": f"{SDK}::test_files_in_every_form",
    "/filesystem.Filesystem/WatchDir": f"{SDK}::test_the_async_sdk_watches_by_stream",
    "/filesystem.Filesystem/CreateWatcher": f"{REST}::test_deep_watches_by_polling",
    "/filesystem.Filesystem/GetWatcherEvents": f"{REST}::test_deep_watches_by_polling",
    "/filesystem.Filesystem/RemoveWatcher": f"{REST}::test_deep_watches_by_polling",
    "/health": f"{HOSTS}::test_envd_by_its_name",
    "/files": f"{REST}::test_compressed_uploads_and_downloads",
    "/files/compose": f"{REST}::test_files_are_joined",
    "/envs": f"{REST}::test_what_envd_tells_of_itself",
    "/metrics": f"{REST}::test_what_envd_tells_of_itself",
    # every other port
    "HTTP": f"{HOSTS}::test_http_goes_to_the_port_of_the_name",
    "WebSocket": f"{HOSTS}::test_websockets_and_events_stream",
    "events": f"{HOSTS}::test_websockets_and_events_stream",
    "signed URL without an address": f"{SDK}::test_signed_urls_without_an_address",
    "not offered": f"{REST}::test_what_is_not_offered_says_so",
}
OTHER = {"HTTP", "WebSocket", "events", "signed URL without an address", "not offered"}


def test_every_route_is_in_the_table() -> None:
    control = {
        f"{method} {route.path}"
        for route in (*sandbox_routes(), *catalog_routes())
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert set(DRIVEN) - OTHER == control | set(proto.METHODS) | set(ENVD_PATHS)


def test_every_test_of_the_table_is_there() -> None:
    folder = Path(__file__).parent
    found = {
        f"{path.stem}::{node.name}"
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(DRIVEN.values()) <= found
