"""Files below a folder: plain files only, and no link is followed.

A path has two parts. Links may lie on the way to the ``root``, which a user named; by
default it is the folder of the file. Below it each folder is opened by itself and must
not be a link. What is refused raises OSError, with a reason as its ``strerror``.

This module imports nothing of dadmm: launchers load it without numpy.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not block
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


@contextmanager
def within(
    path: Path, root: Path | None = None, make: bool = False
) -> Iterator[tuple[int, str]]:
    """Open the folder of a path; give its handle and the last word of the path.

    Parameters
    ----------
    path : Path
    root : Path, optional
        A folder above it, from where on no link is followed.
    make : bool
        Whether to make folders below the root that are not there.
    """
    root = path.parent if root is None else root
    handle = os.open(root, FOLDER)
    try:
        *folders, last = path.relative_to(root).parts
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=handle)
            if kind(folder, handle) not in ("folder", "none"):
                raise _refusal(folder, kind(folder, handle), "folder")
            inner = os.open(folder, FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle, last
    finally:
        os.close(handle)


def kind(path: str | Path, handle: int | None = None) -> str:
    """Return what is there: file, folder, link, special, or none."""
    try:
        mode = os.stat(path, dir_fd=handle, follow_symlinks=False).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL
        return "none"
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return "none"
        raise
    return KINDS.get(stat.S_IFMT(mode), "special")


def kind_of(entry: os.DirEntry[str]) -> str:
    """Return the same of an entry of a folder."""
    if entry.is_symlink():
        return "link"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "folder" if entry.is_dir(follow_symlinks=False) else "special"


def _refusal(name: str, found: str, wanted: str = "file") -> OSError:
    what = {"link": "a link", "folder": "a folder", "file": "a file"}
    wanted = "plain file" if wanted == "file" else wanted
    return OSError(
        errno.EEXIST, f"{name} is {what.get(found, 'a special file')}, not a {wanted}"
    )


def create(path: Path, root: Path | None = None, mode: int = 0o666) -> int:
    """Return the handle of a new file, open for reading and writing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | PLAIN
    with within(path, root) as (handle, name):
        return os.open(name, flags, mode, dir_fd=handle)


def open_plain(path: Path, root: Path | None = None, flags: int = os.O_RDONLY) -> int:
    """Return the handle of a file that is there, and plain."""
    with within(path, root) as (handle, name):
        if kind(name, handle) not in ("file", "none"):
            raise _refusal(name, kind(name, handle))
        file = os.open(name, flags | PLAIN, dir_fd=handle)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refusal(name, "special")
    return file


def read(path: Path, root: Path | None = None, most: int = -1) -> bytes:
    """Return what is in a plain file, or so many bytes of it at most."""
    with open(open_plain(path, root), "rb") as file:
        return file.read(most)


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a plain file, if it is there; leave anything else."""
    with suppress(FileNotFoundError), within(path, root) as (handle, name):
        if kind(name, handle) == "file":
            os.unlink(name, dir_fd=handle)


def remove_folder(path: Path, root: Path | None = None) -> None:
    """Remove a folder, if it is there and empty."""
    with suppress(OSError), within(path, root) as (handle, name):
        os.rmdir(name, dir_fd=handle)


def draft_of(name: str) -> str:
    """Return the name under which a file is written before it takes its place."""
    return f".{name}.draft"


@contextmanager
def replacing(
    path: Path, root: Path | None = None, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Give a file to write, which then takes the place of ``path`` in one step.

    Folders below the root are made. What is in the place must be a plain file.
    """
    with within(path, root, make=True) as (handle, name):
        draft = draft_of(name)
        for word in (name, draft):
            if kind(word, handle) not in ("file", "none"):
                raise _refusal(word, kind(word, handle))
        if kind(draft, handle) == "file":  # of a process that was killed
            os.unlink(draft, dir_fd=handle)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN
        file = open(os.open(draft, flags, mode, dir_fd=handle), "wb")  # noqa: SIM115
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, name, src_dir_fd=handle, dst_dir_fd=handle)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=handle)
