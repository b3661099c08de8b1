"""The errno of a failed call, as a sentence with the mend in it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxes.errors import Capacity, Conflict, Internal, InvalidRequest, NotFound, SandboxError

__all__ = ["translated"]

_SENTENCES: dict[int, tuple[type[SandboxError], str]] = {
    errno.ENOENT: (NotFound, "{path} does not exist; check the path"),
    errno.ENOTDIR: (InvalidRequest, "A part of {path} is no directory; check the path"),
    errno.EISDIR: (InvalidRequest, "{path} is a directory; name a file"),
    errno.ELOOP: (InvalidRequest, "{path} leads through too many links; name the file itself"),
    errno.ENAMETOOLONG: (InvalidRequest, "{path:.80}… is too long; use a shorter name"),
    errno.EINVAL: (InvalidRequest, "{path} cannot be used for this; name another path"),
    errno.EXDEV: (InvalidRequest, "{path} lies on another mount; name a path on the same one"),
    errno.ENXIO: (InvalidRequest, "{path} is no regular file; name a regular file"),
    errno.EACCES: (InvalidRequest, "{path} cannot be changed here; name another path"),
    errno.EPERM: (InvalidRequest, "{path} cannot be changed here; name another path"),
    errno.EROFS: (InvalidRequest, "{path} is read-only; name a path outside it"),
    errno.EOPNOTSUPP: (
        InvalidRequest,
        "{path} is on a file system that holds no metadata; leave the metadata out",
    ),
    errno.E2BIG: (InvalidRequest, "The metadata of {path} is too large; shorten it"),
    errno.ERANGE: (InvalidRequest, "The metadata of {path} is too large; shorten it"),
    errno.EEXIST: (Conflict, "{path} is in the way; remove it first"),
    errno.ENOTEMPTY: (Conflict, "{path} is not empty; empty it first"),
    errno.EBUSY: (Conflict, "{path} is in use as a mount; name something inside it"),
    errno.ETXTBSY: (Conflict, "{path} is being executed; stop that program first"),
    errno.EAGAIN: (Conflict, "{path} is being changed by a program; try again"),
    errno.ESTALE: (Conflict, "{path} is being changed by a program; try again"),
    errno.ENOSPC: (Capacity, "No space is left for {path}; remove files first"),
    errno.EDQUOT: (Capacity, "No space is left for {path}; remove files first"),
    errno.EFBIG: (Capacity, "{path} would be larger than its file system allows; write less"),
    errno.EMFILE: (Capacity, "Too many files are open for {path}; try again later"),
    errno.ENFILE: (Capacity, "Too many files are open for {path}; try again later"),
    errno.ENOMEM: (Capacity, "No memory is left for {path}; try again later"),
}


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raises `sandboxes.errors` in place of any OSError of the block; `path` is what to call it."""
    try:
        yield
    except OSError as error:
        kind, sentence = _SENTENCES.get(
            error.errno or 0, (Internal, "{path} could not be used; see sandboxd's log")
        )
        raise kind(sentence.format(path=path), detail=str(error)) from error
