"""Writes that replace regular files only, whole or not at all.

Unfinished files are in a folder `.NAME.prunecast-HEX` beside their destination, which the process keeps
locked. The next writer of NAME removes such folders that nobody locks: they are what killed processes left.
"""

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prunecast.errors import BadInput
from prunecast.files.reading import other_than_regular

MARK = ".prunecast-"
"""Between the name of a file and the number of its unfinished twin."""
UNFINISHED = re.compile(r"\..*\.prunecast-[0-9a-f]{32}", re.DOTALL)
"""Names of the hidden folders."""


def asked_path(path: str | Path) -> Path:
    """The path that a user knows for one inside the hidden folder of unfinished files."""
    return Path(*(part for part in Path(path).parts if not UNFINISHED.fullmatch(part)))


def check_writable(path: str | Path, what: str) -> Path:
    """The file that an output replaces, at the end of any symbolic links.

    Parameters
    ----------
    what : begins the message: `-o`, `--report`

    Raises
    ------
    BadInput : the folder is not there or cannot be written, or something else than a regular file is there
    """
    try:
        final = Path(os.path.realpath(path))
        if not final.parent.is_dir():
            raise BadInput(f"{what} must lie in a folder that exists, got {path}")
        if not os.access(final.parent, os.W_OK | os.X_OK):
            raise BadInput(f"{what} must lie in a folder that can be written, got {path}")
        with suppress(FileNotFoundError):
            kind = other_than_regular(os.stat(final).st_mode)
            if kind:
                raise BadInput(f"{what} must be a file, got {kind}: {path}")
    except BadInput:
        raise
    except (OSError, ValueError) as error:  # also a relative path where the current folder is deleted
        cause = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{what} cannot be {path}: {cause}") from None
    return final


def _put(unfinished: Path, final: Path) -> None:
    """Move a finished file of the same file system to its place, in the mode of the one that was there."""
    with suppress(FileNotFoundError):
        shutil.copymode(final, unfinished)
    os.replace(unfinished, final)


def put_unless_filled(unfinished: Path, final: Path) -> None:
    """Move a database to where none is; raises FileExistsError where another process was faster."""
    if final.exists() and final.stat().st_size == 0:
        os.replace(unfinished, final)
    else:
        os.link(unfinished, final)


@contextmanager
def aside(path: str | Path, *, put: Callable[[Path, Path], None] = _put) -> Iterator[Path]:
    """A place to write to that becomes `path` when the block ends without an error.

    Parameters
    ----------
    put : moves the finished file to its place; its FileExistsError comes out as it is

    Raises
    ------
    BadInput : the file cannot be written, or something else than a regular file is there
    """
    final = check_writable(path, "an output")
    try:
        with _own_folder(final) as folder:
            unfinished = folder / final.name
            yield unfinished
            put(unfinished, final)
    except FileExistsError:
        raise
    except OSError as error:
        raise BadInput(f"cannot write {asked_path(path)}: {error.strerror or error}") from None


def write_text_aside(path: str | Path, text: str) -> None:
    """Write `path` so that it holds either its old content or all of the new.

    Raises
    ------
    BadInput : as `aside`
    """
    with aside(path) as unfinished:
        # a name of a tensor may hold half of a character, which UTF-8 cannot
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def folder_aside(folder: str | Path, *, last: str = "") -> Iterator[Path]:
    """A new folder whose files become those of `folder` when the block ends without an error.

    A folder that is not there yet appears with all its files at once. In one that is there, the file
    `last` is removed first and comes last: whoever finds it finds the files that belong to it, whenever this
    was killed.

    Raises
    ------
    BadInput : the folder cannot be written; an error inside the block leaves what was there
    """
    final = Path(os.path.realpath(folder))
    try:
        with _own_folder(final) as own:
            unfinished = own / final.name
            unfinished.mkdir()
            yield unfinished
            if not final.exists():
                os.replace(unfinished, final)
                return
            names = sorted(os.listdir(unfinished), key=lambda name: (name == last, name))
            places = {name: check_writable(final / name, "an output") for name in names}
            if last:
                (final / last).unlink(missing_ok=True)
            for name, place in places.items():
                _put_anywhere(unfinished / name, place)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror or error}") from None


def _put_anywhere(unfinished: Path, final: Path) -> None:
    """Move a finished file to its place; through a copy where a link leads to another file system."""
    if unfinished.stat().st_dev == final.parent.stat().st_dev:
        _put(unfinished, final)
        return
    with aside(final) as copy:
        shutil.copyfile(unfinished, copy)


@contextmanager
def _own_folder(final: Path) -> Iterator[Path]:
    """A locked folder beside `final`, removed in the end."""
    name = final.name.encode("utf-8", "surrogateescape")[:100].decode("utf-8", "surrogateescape")
    _remove_left(final.parent, f".{name}{MARK}")
    while True:
        folder = final.with_name(f".{name}{MARK}{uuid.uuid4().hex}")
        folder.mkdir()
        with suppress(FileNotFoundError), _opened(folder) as descriptor:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not folder.exists():
                continue  # another process took it for one of a killed run before it was locked
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return


def _remove_left(parent: Path, beginning: str) -> None:
    """Remove what killed processes left."""
    for entry in os.scandir(parent):
        if entry.name.startswith(beginning) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError), _opened(Path(entry.path)) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The descriptor of a folder, which a lock needs."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
