"""A root file system on the host's disk: unpack it safely, shift its owners, make it ready.

A tar is hostile until unpacked: every member is placed by walking directory descriptors without
following links, so nothing lands outside the target whatever its names and links say.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from sandboxes.errors import InvalidRequest
from sandboxes.sandboxd.templates.host import CA_BUNDLE

__all__ = [
    "ID_RANGE",
    "ID_SHIFT",
    "append_certificates",
    "extract_tar",
    "make_ready",
    "shift_owners",
    "tree_size",
]

ID_SHIFT = 100000
"""Added to every uid and gid: sandbox root is this host uid, which owns nothing else."""
ID_RANGE = 65536

_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def extract_tar(
    tar_path: Path, target: Path, *, shift: int, on_member: Callable[[int], None] | None = None
) -> None:
    """Unpack into the empty directory `target`, owners shifted, extended attributes dropped.

    Device nodes under /dev are left out (a sandbox gets its own); a device anywhere else, a name
    with `..`, a path through a link and an owner past 65535 are refused with InvalidRequest.
    """
    root = os.open(target, _DIR_FLAGS)
    directory_times: list[tuple[PurePosixPath, float]] = []
    try:
        with tarfile.open(tar_path, "r:*") as archive:
            for number, member in enumerate(archive):
                path = _member_path(member.name)
                if not path.parts:
                    _set_owner_and_mode(root, ".", member, shift)
                elif not (_is_device(member) and path.parts[0] == "dev"):
                    _place(archive, member, path, root, shift)
                    if member.isdir():
                        directory_times.append((path, member.mtime))
                if on_member is not None:
                    on_member(number + 1)
        for path, mtime in reversed(directory_times):
            _set_time(root, path, mtime)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InvalidRequest(
            f"{tar_path.name} is not a readable tar archive ({error}); make it anew, for example "
            "with `docker export CONTAINER > rootfs.tar`."
        ) from error
    finally:
        os.close(root)


def _member_path(name: str) -> PurePosixPath:
    parts = [part for part in PurePosixPath(name).parts if part not in ("/", ".")]
    if ".." in parts:
        raise InvalidRequest(
            f"The archive's member {name!r} climbs out with `..`; make it without such names."
        )
    return PurePosixPath(*parts)


def _is_device(member: tarfile.TarInfo) -> bool:
    return member.ischr() or member.isblk()


def _place(
    archive: tarfile.TarFile, member: tarfile.TarInfo, path: PurePosixPath, root: int, shift: int
) -> None:
    if not (0 <= member.uid < ID_RANGE and 0 <= member.gid < ID_RANGE):
        raise InvalidRequest(
            f"The archive's member {member.name!r} belongs to {member.uid}:{member.gid}, past the "
            f"{ID_RANGE} owners that a sandbox has; make the archive with smaller ids."
        )
    parent = _open_parent(root, path, shift)
    try:
        _remove_other(parent, path.name, keep_directory=member.isdir())
        if member.isdir():
            if not _exists(parent, path.name):
                os.mkdir(path.name, 0o700, dir_fd=parent)
        elif member.isreg():
            _write_file(archive, member, parent, path.name)
        elif member.issym():
            os.symlink(member.linkname, path.name, dir_fd=parent)
        elif member.islnk():
            _hard_link(member, parent, path.name, root, shift)
            return
        elif member.isfifo():
            os.mkfifo(path.name, 0o600, dir_fd=parent)
        elif member.ischr() and (member.devmajor, member.devminor) == (0, 0):
            os.mknod(path.name, 0o600 | stat.S_IFCHR, 0, dir_fd=parent)
        else:
            raise InvalidRequest(
                f"The archive's member {member.name!r} is a device; only those under /dev may be "
                "there (and are left out)."
            )
        _set_owner_and_mode(parent, path.name, member, shift)
    finally:
        os.close(parent)


def _open_parent(root: int, path: PurePosixPath, shift: int) -> int:
    """A descriptor of the directory that holds `path`, made if the archive did not list it."""
    current = os.dup(root)
    for part in path.parts[:-1]:
        try:
            try:
                following = os.open(part, _DIR_FLAGS, dir_fd=current)
            except FileNotFoundError:
                os.mkdir(part, 0o755, dir_fd=current)
                os.chown(part, shift, shift, dir_fd=current, follow_symlinks=False)
                following = os.open(part, _DIR_FLAGS, dir_fd=current)
        except NotADirectoryError as error:
            raise InvalidRequest(
                f"The archive's member {str(path)!r} goes through {part!r}, which is a link or a "
                "file; make the archive from a plain directory tree."
            ) from error
        finally:
            os.close(current)
        current = following
    return current


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove_other(parent: int, name: str, *, keep_directory: bool) -> None:
    """A later member replaces an earlier one of the same name, as tar has it."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=parent)
    elif not keep_directory:
        shutil.rmtree(name, dir_fd=parent)


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, parent: int, name: str) -> None:
    source = archive.extractfile(member)
    if source is None:
        raise InvalidRequest(f"The archive's member {member.name!r} has no content.")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=parent)
    with os.fdopen(descriptor, "wb") as output:
        shutil.copyfileobj(source, output, 1024 * 1024)


def _hard_link(member: tarfile.TarInfo, parent: int, name: str, root: int, shift: int) -> None:
    path = _member_path(member.linkname)
    source = _open_parent(root, path, shift)
    try:
        found = os.stat(path.name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            raise InvalidRequest(f"The archive's member {member.name!r} links to a directory.")
        os.link(path.name, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError as error:
        raise InvalidRequest(
            f"The archive's member {member.name!r} links to {member.linkname!r}, which does not "
            "come before it."
        ) from error
    finally:
        os.close(source)


def _set_owner_and_mode(parent: int, name: str, member: tarfile.TarInfo, shift: int) -> None:
    os.chown(name, member.uid + shift, member.gid + shift, dir_fd=parent, follow_symlinks=False)
    if member.issym():
        return
    # After chown, which clears the setuid bit. The name was made just now in a directory that only
    # this process can write, so it is no link.
    os.chmod(name, member.mode & 0o7777, dir_fd=parent)
    if not member.isdir():
        os.utime(name, (member.mtime, member.mtime), dir_fd=parent, follow_symlinks=False)


def _set_time(root: int, path: PurePosixPath, mtime: float) -> None:
    try:
        parent = _open_parent(root, path, 0)
    except InvalidRequest:
        return  # replaced by a later member
    try:
        if _exists(parent, path.name):
            os.utime(path.name, (mtime, mtime), dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def shift_owners(tree: Path, shift: int) -> int:
    """Add `shift` to the uid and gid of everything in `tree`; returns how many entries it has.

    Not idempotent: for a tree that was just made. Refuses an owner past the range.
    """
    count = 0
    seen: set[int] = set()
    for directory, _, _, descriptor in os.fwalk(tree, topdown=False, follow_symlinks=False):
        with os.scandir(descriptor) as entries:
            for entry in entries:
                _shift_entry(descriptor, entry.name, shift, seen, Path(directory))
                count += 1
    _shift_entry(None, str(tree), shift, seen, tree)
    return count + 1


def _shift_entry(
    parent: int | None, name: str, shift: int, seen: set[int], directory: Path
) -> None:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if found.st_ino in seen:
            return
        seen.add(found.st_ino)
    if found.st_uid >= ID_RANGE or found.st_gid >= ID_RANGE:
        raise InvalidRequest(
            f"{directory / name} belongs to {found.st_uid}:{found.st_gid}, past the {ID_RANGE} "
            "owners that a sandbox has."
        )
    os.chown(name, found.st_uid + shift, found.st_gid + shift, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=parent)


def make_ready(tree: Path, *, shift: int) -> None:
    """Lay out what every sandbox expects: an empty /dev, /workspace, the skills folder, and the
    account `user` (uid 1000). Works on a tree of any origin; follows no link. Idempotent.

    InvalidRequest if the tree cannot be a sandbox: no /bin/sh, or no account file.
    """
    root = os.open(tree, _DIR_FLAGS)
    try:
        if not _resolves(tree, "bin/sh"):
            raise InvalidRequest(
                "The archive has no /bin/sh: it must hold a whole Linux root file system, not a "
                "single program."
            )
        _clear_dev(root)
        _ensure_account(root, shift)
        for path, owner in (
            ("dev", 0),
            ("proc", 0),
            ("sys", 0),
            ("tmp", 0),
            ("opt/weknora/tenant/skills", 0),
            ("home/user", 1000),
            ("workspace", 1000),
            ("workspace/input", 1000),
            ("workspace/output", 1000),
        ):
            _ensure_directory(root, PurePosixPath(path), owner + shift, shift)
        os.chmod("tmp", 0o1777, dir_fd=root)  # noqa: S103 - what /tmp is
    finally:
        os.close(root)


def append_certificates(tree: Path, certificates: Sequence[str]) -> bool:
    """Add PEMs to the tree's bundle, following no link; False if the tree has no bundle there."""
    root = os.open(tree, _DIR_FLAGS)
    try:
        try:
            parent = _open_parent(root, PurePosixPath(CA_BUNDLE.lstrip("/")), ID_SHIFT)
        except InvalidRequest:
            return False
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            bundle = os.open(PurePosixPath(CA_BUNDLE).name, flags, dir_fd=parent)
        except OSError:
            return False
        finally:
            os.close(parent)
        with os.fdopen(bundle, "w") as output:
            output.write("".join(certificates))
    finally:
        os.close(root)
    return True


def _resolves(tree: Path, path: str) -> bool:
    """Whether `path` exists as seen from inside `tree`, whose absolute links count from its root."""
    current, rest, hops = PurePosixPath(), list(PurePosixPath(path).parts), 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            current = current.parent
            continue
        candidate = tree / current / part
        if candidate.is_symlink():
            hops += 1
            if hops > 40:
                return False
            target = PurePosixPath(os.readlink(candidate))
            if target.is_absolute():
                current, target = PurePosixPath(), target.relative_to("/")
            rest = [*target.parts, *rest]
        elif not candidate.exists():
            return False
        else:
            current = current / part
    return True


def _clear_dev(root: int) -> None:
    try:
        found = os.stat("dev", dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree("dev", dir_fd=root)
    else:
        os.unlink("dev", dir_fd=root)


def _ensure_directory(root: int, path: PurePosixPath, owner: int, shift: int) -> None:
    parent = _open_parent(root, path, shift)
    try:
        try:
            os.mkdir(path.name, 0o755, dir_fd=parent)
        except FileExistsError:
            found = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                raise InvalidRequest(
                    f"/{path} is a link or a file in this image; it must be a directory."
                ) from None
        os.chown(path.name, owner, owner, dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)


def _ensure_account(root: int, shift: int) -> None:
    lines = {
        "passwd": "user:x:1000:1000::/home/user:{shell}\n",
        "group": "user:x:1000:\n",
        "shadow": "user:!:19000:0:99999:7:::\n",
    }
    parent = _open_parent(root, PurePosixPath("etc/passwd"), shift)
    try:
        shell = "/bin/bash" if _in_bin(root, "bash") else "/bin/sh"
        for name, line in lines.items():
            text = _read_text(parent, name)
            if text is None:
                if name == "passwd":
                    raise InvalidRequest(
                        "The archive has no /etc/passwd: it must hold a whole Linux root file "
                        "system."
                    )
                continue
            accounts = [entry.split(":") for entry in text.splitlines()]
            taken = [entry for entry in accounts if len(entry) > 2 and entry[2] == "1000"]
            if any(entry[0] == "user" for entry in accounts):
                continue
            if taken and name != "shadow":
                raise InvalidRequest(
                    f"/etc/{name} gives id 1000 to {taken[0][0]!r}; sandboxes run skills as "
                    "`user` with id 1000: rename that account in the image."
                )
            if text and not text.endswith("\n"):
                line = "\n" + line
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, dir_fd=parent), "a") as output:
                output.write(line.format(shell=shell))
    finally:
        os.close(parent)


def _in_bin(root: int, name: str) -> bool:
    for folder in ("usr/bin", "bin"):
        try:
            os.stat(f"{folder}/{name}", dir_fd=root, follow_symlinks=False)
        except OSError:
            continue
        return True
    return False


def _read_text(parent: int, name: str) -> str | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return None
    with os.fdopen(descriptor, errors="surrogateescape") as source:
        return source.read()


def tree_size(tree: Path) -> int:
    """Bytes on disk, each file counted once however often it is linked."""
    total = 0
    seen: set[int] = set()
    for _, directories, files, descriptor in os.fwalk(tree, follow_symlinks=False):
        for name in (*directories, *files):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                if found.st_ino in seen:
                    continue
                seen.add(found.st_ino)
            total += found.st_blocks * 512
    return total
