"""The point about both network switches, and dialling ports from outside."""

from __future__ import annotations

import httpx

from sandboxes.checklist.run import Failed, Run
from sandboxes.client import InboundAccess
from sandboxes.types import (
    Sandbox,
)

__all__ = ["dial", "switches_hold"]

_DIAL_LIMIT_S = 20.0
_OUTSIDE = (("1.1.1.1", 443), ("223.5.5.5", 443), ("8.8.8.8", 443))
_PORT = 8077
_SERVE = (
    f"mkdir -p /tmp/check && cd /tmp/check && echo served > index.html && "
    f"(setsid nohup python3 -m http.server {_PORT} >/dev/null 2>&1 </dev/null &) ; "
    f"for n in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/{_PORT}) 2>/dev/null && exit 0; sleep 0.1; done; "
    "exit 1"
)
_REACH = "timeout 4 bash -c 'exec 3<>/dev/tcp/{host}/{port}' 2>/dev/null"

# Whoever routes for the sandbox, and where clouds keep credentials.
_PRIVATE = """
for host in 169.254.169.254 $(awk '$2 == "00000000" { print $3 }' /proc/net/route |
    sed 's/\\(..\\)\\(..\\)\\(..\\)\\(..\\)/0x\\4 0x\\3 0x\\2 0x\\1/' |
    while read -r a b c d; do echo "$((a)).$((b)).$((c)).$((d))"; done); do
  for port in 22 80 111 443 2375 2376 3000 8080; do
    ( timeout 1 bash -c "exec 3<>/dev/tcp/$host/$port" && echo "$host:$port" ) 2>/dev/null &
  done
done
wait
"""

# A name that nobody has looked up before, so that no cache answers: “no such name” is an answer too.
_ASK_DNS = """python3 - <<'END' 2>/dev/null || echo no
import re, secrets, socket
servers = re.findall(r"^nameserver ([0-9.]+)", open("/etc/resolv.conf").read(), re.M) + ["1.1.1.1"]
label = secrets.token_hex(8).encode()
query = b"\\1\\2\\1\\0\\0\\1" + bytes(6) + bytes([16]) + label + b"\\7example\\3com\\0\\0\\1\\0\\1"
asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asked.settimeout(2)
for server in servers:
    try:
        asked.sendto(query, (server, 53))
        if asked.recv(512)[:2] == b"\\1\\2":
            print("yes")
            break
    except OSError:
        continue
else:
    print("no")
END"""


async def switches_hold(run: Run) -> None:
    run.need("outbound_switch")
    reached: dict[bool, bool] = {}
    for outbound in (True, False):
        for inbound in (True, False):
            if inbound and not run.client.capabilities.inbound_switch:
                run.note("inbound on: this backend has no inbound switch")
                continue
            box = await run.sandbox(outbound=outbound, inbound=inbound)
            where = await _reaches(run, box)
            reached[outbound] = reached.get(outbound, False) or where is not None
            label = f"outbound {'on' if outbound else 'off'}, inbound {'on' if inbound else 'off'}"
            run.note(f"{label}: {'reaches ' + where if where else 'reaches nothing outside'}")
            if not outbound and where is not None:
                raise Failed(f"With outbound off it still reaches {where}.")
            if outbound and not inbound:
                await _check_private(run, box)
            if not outbound and not inbound:
                await _look_at_dns(run, box)
            await _check_inbound(run, box, inbound=inbound)
    if not reached.get(True):
        run.note("outbound on could not be shown: nothing outside answers from here at all")
    resolver = await run.text(box, "grep -m1 ^nameserver /etc/resolv.conf || echo none")
    run.note(f"names are resolved by {resolver.removeprefix('nameserver').strip()}")


async def _reaches(run: Run, box: Sandbox) -> str | None:
    for host, port in _OUTSIDE:
        script = _REACH.format(host=host, port=port) + " && echo yes || echo no"
        if await run.text(box, script) == "yes":
            return f"{host}:{port}"
    return None


async def _look_at_dns(run: Run, box: Sandbox) -> None:
    """Evidence only: a closed sandbox that gets answers from a DNS server can send data out by it."""
    answered = await run.text(box, _ASK_DNS) == "yes"
    note = run.client.capabilities.notes.get("outbound_switch", "") if answered else ""
    told = "a DNS server answers all the same" if answered else "no DNS server answers"
    run.note(f"outbound off: {told}. {note}".strip())


async def _check_private(run: Run, box: Sandbox) -> None:
    found = ", ".join(sorted((await run.text(box, _PRIVATE)).split()))
    able = run.client.capabilities
    if found and able.private_ranges_closed:
        raise Failed(f"With outbound on it reaches {found}, inside the host's own network.")
    if able.private_ranges_closed:
        run.note("outbound on: the host's own network stays closed")
        return
    note = able.notes.get("private_ranges_closed", "It says no more about it.")
    run.note(
        f"outbound on: the backend does not promise to close the host's own network, and "
        f"{'it reaches ' + found if found else 'nothing there answered'}. {note}"
    )


async def _check_inbound(run: Run, box: Sandbox, *, inbound: bool) -> None:
    if run.client.inbound is None or not run.client.capabilities.inbound_token:
        run.note("its ports cannot be reached from outside on this backend")
        return
    await run.text(box, _SERVE)
    bare = await dial(run.client.inbound, box, _PORT)
    if inbound:
        run.expect(bare == 200, "its port is open to all", f"Its open port answers {bare}.")
        return
    run.expect(bare == 403, "its port is closed to strangers", f"Its closed port answers {bare}.")
    known = await dial(run.client.inbound, box, _PORT, token=box.traffic_token)
    run.expect(known == 200, "its token opens the port", f"With its token the port says {known}.")


async def dial(
    access: InboundAccess, box: Sandbox, port: int, *, token: str | None = None, path: str = "/"
) -> int:
    endpoint = access.endpoint(box, port)
    headers = dict(endpoint.headers)
    if token is not None:
        headers[InboundAccess.TOKEN_HEADER] = token
    transport = httpx.AsyncHTTPTransport(uds=endpoint.socket_path, trust_env=False)
    async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
        try:
            url = endpoint.url.rstrip("/") + path
            return (await http.get(url, headers=headers, timeout=_DIAL_LIMIT_S)).status_code
        except httpx.HTTPError as error:
            raise Failed(f"The port {port} cannot be dialled: {type(error).__name__}.") from error
