"""A package from a direct https URL: guarded against forged requests, bounded in size and time."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from typing import BinaryIO, cast

import httpx

from sandboxes.errors import SandboxError
from sandboxes.urlguard import UrlGuard, check_url
from sandboxes.wire.transport import Dial
from skills.package.errors import refuse
from skills.package.types import LIMITS

__all__ = ["download"]

TIMEOUT_S = 60.0
_MAX_REDIRECTS = 5
_IN_MEMORY_BYTES = 1024 * 1024


async def download(
    url: str,
    *,
    dial: Dial | None = None,
    max_bytes: int = LIMITS.max_archive_bytes,
    timeout_s: float = TIMEOUT_S,
) -> BinaryIO:
    """The content as a seekable file, to be closed by the caller.

    Every hop of a redirect has to be https and is judged by its address when it is dialled. Raises
    PackageRefused for whatever comes in the way: its sentence names the URL and the mend. `dial` is
    replaced in tests.
    """
    dial = dial or Dial(guard=UrlGuard())
    try:
        check_url(url)
        _https_only(httpx.URL(url))
        async with asyncio.timeout(timeout_s):
            return await _fetch(url, dial, max_bytes)
    except SandboxError as error:
        raise refuse("url_refused", error.message, url) from error
    except TimeoutError:
        raise refuse(
            "url_timeout",
            f"“{url}” did not arrive within {timeout_s:g} s; download it and upload the file.",
            url,
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
        reason = str(error) or type(error).__name__
        raise refuse(
            "url_failed", f"“{url}” could not be fetched: {reason}. Check the address.", url
        ) from error


async def _fetch(url: str, dial: Dial, max_bytes: int) -> BinaryIO:
    async def judge(request: httpx.Request) -> None:
        _https_only(request.url)

    client = httpx.AsyncClient(
        transport=dial.transport(tls=True),
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        event_hooks={"request": [judge]},
        trust_env=False,
        timeout=httpx.Timeout(15.0),
    )
    # Closed by the caller, and below if it never gets it.
    spool = cast("BinaryIO", tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES))  # noqa: SIM115
    try:
        # Counted as it arrives and never unpacked here: an archive has its own limits.
        headers = {"Accept-Encoding": "identity", "User-Agent": "skillyard"}
        async with client, client.stream("GET", url, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise refuse(
                    "url_status",
                    f"“{url}” answered {response.status_code}; give a direct link that needs no "
                    "sign-in.",
                    url,
                )
            size = 0
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > max_bytes:
                    raise refuse(
                        "url_too_large",
                        f"“{url}” is larger than {max_bytes // 2**20} MiB, the limit of a package.",
                        url,
                    )
                spool.write(chunk)
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


def _https_only(url: httpx.URL) -> None:
    if url.scheme != "https":
        raise refuse(
            "url_not_https", f"“{url}” is not https; only https links are fetched.", str(url)
        )
