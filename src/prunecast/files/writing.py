"""Atomic writes that replace only regular files.

Unfinished files are in a folder `.NAME.prunecast-HEX` next to their destination, which the process keeps
locked. The next writer of NAME removes such folders without a lock, which killed processes have left.
"""

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from prunecast.errors import BadInput
from prunecast.files.reading import other_than_regular

MARK = ".prunecast-"
"""Separator of the name of a file and the random number of its unfinished folder."""
UNFINISHED = re.compile(r"\..*\.prunecast-[0-9a-f]{32}", re.DOTALL)
"""Names of the hidden folders."""
MOST_TRIES = 100
"""Hidden folders that are made for one output if other processes remove each before it is locked."""


def asked_path(path: str | Path) -> Path:
    """Return the path that a user knows for one inside the hidden folder of unfinished files."""
    return Path(*(part for part in Path(path).parts if not UNFINISHED.fullmatch(part)))


def check_writable(path: str | Path, what: str) -> Path:
    """Return the file that an output replaces, at the end of any symbolic links.

    Parameters
    ----------
    what : begins the message: `-o`, `--report`

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
            kind = other_than_regular(os.stat(final).st_mode)
            if kind:
                raise BadInput(f"{what} must be a file, got {kind}: {path}")
    except BadInput:
        raise
    except (OSError, ValueError) as error:  # e.g. a relative path after the current folder was deleted
        cause = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{what} cannot be {path}: {cause}") from None
    return final


def _put(unfinished: Path, final: Path) -> None:
    """Move a finished file within its file system to its destination, with the mode of the file that it
    replaces.
    """
    with suppress(FileNotFoundError):
        shutil.copymode(final, unfinished)
    os.replace(unfinished, final)


def put_unless_filled(unfinished: Path, final: Path) -> None:
    """Move a database to a path without one; raise FileExistsError if another process was faster."""
    if final.exists() and final.stat().st_size == 0:
        _put(unfinished, final)
    else:
        os.link(unfinished, final)


@contextmanager
def aside(path: str | Path, *, put: Callable[[Path, Path], None] = _put) -> Iterator[Path]:
    """Yield a path to write to, which becomes `path` when the block ends without an error.

    Parameters
    ----------
    put : moves the finished file to its destination; its FileExistsError is passed on

    Raises
    ------
    BadInput : the file cannot be written, or the path exists and is no regular file
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
        # a tensor's name may hold a lone surrogate, which UTF-8 cannot encode
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def folder_aside(folder: str | Path, *, last: str = "") -> Iterator[Path]:
    """Yield a new folder whose files become those of `folder` when the block ends without an error.

    A folder that does not exist yet appears with all its files at once. In an existing one, the file `last`
    is removed first and written last: if it exists, it belongs to the other files, even after the process was
    killed.

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
            if last:
                (final / last).unlink(missing_ok=True)
            for name, place in places.items():
                _put_anywhere(unfinished / name, place)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror or error}") from None


def _put_anywhere(unfinished: Path, final: Path) -> None:
    """Move a finished file to its destination, by a copy if a link leads to another file system."""
    if unfinished.stat().st_dev == final.parent.stat().st_dev:
        _put(unfinished, final)
        return
    with aside(final) as copy:
        shutil.copyfile(unfinished, copy)


@contextmanager
def _own_folder(final: Path) -> Iterator[Path]:
    """Yield a locked folder next to `final`, which is removed at the end."""
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
    """Remove the folders of killed processes."""
    for entry in os.scandir(parent):
        if entry.name.startswith(beginning) and entry.is_dir(follow_symlinks=False):
            with suppress(OSError), _opened(Path(entry.path)) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Yield the descriptor of a folder, which a lock needs."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
