"""Reading and writing of plain files below a ``root``, without following links there.

The root is the folder of the file by default, and may be below links itself. Functions
raise OSError with a reason as its ``strerror``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
NOWHERE = (
    errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EACCES, errno.ELOOP
)  # fmt: skip
KINDS = {
    stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link",
    stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket",
}  # fmt: skip


@contextmanager
def within(
    path: Path, root: Path | None = None, make: bool = False
) -> Iterator[tuple[int, str]]:
    """Open the folder of a path, or make it; yield its handle and the file's name."""
    root = path.parent if root is None else root
    handle = os.open(root, FOLDER)
    try:
        *folders, last = path.relative_to(root).parts
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=handle)
            kind(folder, handle, wanted="folder")
            inner = os.open(folder, FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, last
    finally:
        os.close(handle)


def kind(
    path: str | Path, handle: int | None = None, follow: bool = False, wanted: str = ""
) -> str:
    """Return what can be seen: file, folder, link, named pipe, socket, device, none.

    Raise if it is something else than what is ``wanted``, and not none.
    """
    try:
        mode = os.stat(path, dir_fd=handle, follow_symlinks=follow).st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno in NOWHERE:
            return "none"
        raise
    found = KINDS.get(stat.S_IFMT(mode), "device")
    if wanted not in ("", found):
        raise OSError(errno.EEXIST, f"{path} is a {found}, not a plain {wanted}")
    return found


def exists(path: Path) -> bool:
    return kind(path) != "none"  # also if it is a link to nothing


def open_plain(path: Path, root: Path | None = None, flags: int = os.O_RDONLY) -> int:
    """Return the handle of a plain file, which is made if the flags say so."""
    with within(path, root) as (handle, name):
        kind(name, handle, wanted="file")
        return os.open(name, flags | PLAIN, 0o666, dir_fd=handle)


def lock(handle: int, shared: bool = False) -> bool:
    """Lock a file until it is closed; return whether the file system has locks."""
    try:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:  # another process holds the lock
        raise
    except OSError:
        return False
    return True


def read(path: Path, root: Path | None = None, most: int = -1) -> bytes:
    """Return the contents of a plain file, at most ``most`` bytes if not negative."""
    with open(open_plain(path, root), "rb") as file:
        return file.read(most)


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a plain file if it exists; leave anything else."""
    with suppress(FileNotFoundError), within(path, root) as (handle, name):
        if kind(name, handle) == "file":
            os.unlink(name, dir_fd=handle)


def remove_folder(path: Path, root: Path | None = None) -> None:
    with suppress(OSError), within(path, root) as (handle, name):
        os.rmdir(name, dir_fd=handle)


draft_of = ".{}.draft".format  # the name of a file while it is being written


@contextmanager
def replacing(
    path: Path, root: Path | None = None, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Yield a file to write, which replaces ``path`` atomically when it is closed."""
    with within(path, root, make=True) as (handle, name):
        draft = draft_of(name)
        kind(name, handle, wanted="file")
        kind(draft, handle, wanted="file")
        with suppress(FileNotFoundError):  # else a process was killed
            os.unlink(draft, dir_fd=handle)
        target = os.open(draft, NEW | PLAIN, mode, dir_fd=handle)
        try:
            with open(target, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, name, src_dir_fd=handle, dst_dir_fd=handle)
            os.fsync(handle)  # the folder: else the old name may be back after a crash
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=handle)
