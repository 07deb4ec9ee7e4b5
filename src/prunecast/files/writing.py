"""Write files atomically, and replace only regular files.

Unfinished files are in a hidden folder `.NAME.prunecast-HEX` next to their destination. The process keeps
this folder locked. A folder without a lock belongs to a killed process, and the next writer of NAME removes
it.
"""

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from prunecast.errors import BadInput
from prunecast.files.reading import other_than_regular

MARK = ".prunecast-"
"""Separator between the name of the file and the random number in the name of a hidden folder."""
UNFINISHED = re.compile(r"\..*\.prunecast-[0-9a-f]{32}", re.DOTALL)
"""Names of the hidden folders."""
MOST_TRIES = 100
"""Maximum number of attempts to create a hidden folder that no other process removes before it is locked."""


def asked_path(path: str | Path) -> Path:
    """Return the path that the user gave: `path` without a hidden folder of unfinished files."""
    return Path(*(part for part in Path(path).parts if not UNFINISHED.fullmatch(part)))


def check_writable(path: str | Path, what: str) -> Path:
    """Check that a path can be written, and return it with all symbolic links resolved.

    Parameters
    ----------
    what : option that names the path, such as `-o`; error messages begin with it

    Raises
    ------
    BadInput : the folder does not exist or cannot be written, or the path exists and is no regular file
    """
    try:
        final = Path(os.path.realpath(path))
        if not final.parent.is_dir():
            raise BadInput(f"{what} must lie in a folder that exists, got {path}")
        if not os.access(final.parent, os.W_OK | os.X_OK):
            raise BadInput(f"{what} must lie in a folder that can be written, got {path}")
        with suppress(FileNotFoundError):
            if kind := other_than_regular(os.stat(final).st_mode):
                raise BadInput(f"{what} must be a file, got {kind}: {path}")
    except BadInput:
        raise
    except (OSError, ValueError) as error:  # e.g. a relative path after the current folder was deleted
        cause = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{what} cannot be {path}: {cause}") from None
    return final


def _put(unfinished: Path, final: Path) -> None:
    """Rename a finished file to its destination, with the permissions of the file that it replaces."""
    with suppress(FileNotFoundError):
        shutil.copymode(final, unfinished)
    os.replace(unfinished, final)


def put_unless_filled(unfinished: Path, final: Path) -> None:
    """Move a finished file to `final`; raise FileExistsError if a file that is not empty exists there."""
    if final.exists() and final.stat().st_size == 0:
        _put(unfinished, final)
    else:
        os.link(unfinished, final)


@contextmanager
def aside(path: str | Path, *, put: Callable[[Path, Path], None] = _put) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when the block ends without an error.

    Parameters
    ----------
    put : function that moves the finished file to its destination

    Raises
    ------
    BadInput : the file cannot be written, or the path exists and is not a regular file
    FileExistsError : `put` raised it
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
    """Write a text file atomically: at any time it has either its old or its new content.

    Raises
    ------
    BadInput : in the same cases as `aside`
    """
    with aside(path) as unfinished:
        # a tensor's name may hold a lone surrogate, which UTF-8 cannot encode
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def folder_aside(folder: str | Path, *, last: str = "", earlier: Collection[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder; move its files into `folder` when the block ends without an error.

    A new folder is created with all its files in one step. In an existing folder the file `last` is deleted
    first and written last. So if `last` exists, the other files are complete, even if a process was killed.

    Parameters
    ----------
    earlier : names of files of an earlier result in the folder; those that are not written again are removed

    Raises
    ------
    BadInput : the folder cannot be written; an error inside the block leaves its files unchanged
    """
    final = Path(os.path.realpath(folder))
    try:
        with _own_folder(final) as own:
            unfinished = own / final.name
            unfinished.mkdir()
            yield unfinished
            if not final.exists():
                _put(unfinished, final)
                return
            files = (file.relative_to(unfinished) for file in unfinished.rglob("*") if file.is_file())
            names = sorted(map(str, files), key=lambda name: (name == last, name))
            for inner in {Path(name).parent for name in names} - {Path()}:
                (final / inner).mkdir(parents=True, exist_ok=True)
            places = {name: check_writable(final / name, "an output") for name in names}
            removed = [name for name in earlier if name not in places]
            for name in [last, *removed] if last else removed:
                (final / name).unlink(missing_ok=True)
            for name, place in places.items():
                _put_anywhere(unfinished / name, place)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror or error}") from None


def _put_anywhere(unfinished: Path, final: Path) -> None:
    """Move a finished file to its destination; copy it if the destination is on another file system."""
    if unfinished.stat().st_dev == final.parent.stat().st_dev:
        _put(unfinished, final)
        return
    with aside(final) as copy:
        shutil.copyfile(unfinished, copy)


@contextmanager
def _own_folder(final: Path) -> Iterator[Path]:
    """Create and lock a hidden folder next to `final`, yield it, and remove it at the end."""
    name = final.name.encode("utf-8", "surrogateescape")[:100].decode("utf-8", "surrogateescape")
    _remove_left(final.parent, f".{name}{MARK}")
    for _ in range(MOST_TRIES):
        folder = final.with_name(f".{name}{MARK}{uuid.uuid4().hex}")
        folder.mkdir()
        with ExitStack() as held:
            try:
                descriptor = held.enter_context(_opened(folder))
            except FileNotFoundError:
                continue  # another process removed it before it was locked
            with suppress(OSError):  # the file system does not support locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not folder.exists():
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
    raise OSError(errno.EBUSY, f"another process removed its unfinished folder {MOST_TRIES} times")


def _remove_left(parent: Path, beginning: str) -> None:
    """Remove the hidden folders of killed processes from `parent`.

    These are the folders without a lock whose name starts with `beginning`.
    """
    for entry in os.scandir(parent):
        if entry.name.startswith(beginning) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError), _opened(Path(entry.path)) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Yield a file descriptor of a folder, for locking it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
