"""Check that a command overwrites neither its inputs nor one of its outputs by another.

Paths are compared by the files that they resolve to (resolved path, device and inode), so that symbolic and
hard links are recognised. `check_outputs` is called before any work, with all paths that will be written and
read.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.files.writing import check_writable

JOURNALS = ("-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite keeps next to a database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """A file that will be written.

    Parameters
    ----------
    what : option or argument that names the file, such as `-o` or `--report`; error messages begin with it
    path : path of the file
    suffixes : allowed endings of the file name; empty for any name
    is_new : refuse a file that exists
    companions : endings of further files that the writer creates next to it, such as the journal of a
        database
    """

    what: str
    path: Path
    suffixes: tuple[str, ...] = ()
    is_new: bool = False
    companions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFolder:
    """A folder in which files will be written. It is created if it does not exist.

    Parameters
    ----------
    what : option or argument that names the folder; error messages begin with it
    path : path of the folder
    names : names of the files, or glob patterns such as `*.png`
    """

    what: str
    path: Path
    names: tuple[str, ...]


Output = OutputFile | OutputFolder


class _Target(NamedTuple):
    """One path that an output will replace or create, as the user gave it and with all links resolved."""

    what: str
    shown: Path
    real: str
    identity: tuple[int, int] | None
    """Device and inode of the existing file; None if there is none."""


def check_outputs(outputs: Collection[Output], reads: Iterable[str | Path]) -> None:
    """Check that all outputs can be written, are different files, and are not among the paths that are read.

    Parameters
    ----------
    reads : files and folders that are read; iterated only if an output already exists, since listing the
        files of a checkpoint may require parsing its index

    Raises
    ------
    BadInput : one line that names the output and, if there is one, the input
    """
    targets = [target for output in outputs for target in _targets(output)]
    _check_different(targets)
    _check_patterns(outputs, targets)
    existing: dict[object, _Target] = {each.identity: each for each in targets if each.identity}
    for path in reads if existing else ():
        target = existing.get(identity_of(path))
        if target is not None:
            alias = "" if Path(path) == target.shown else f" as {path}"
            raise BadInput(
                f"{target.what} would overwrite {target.shown}, which is read{alias}: wanted another path"
            )


def identity_of(path: str | Path) -> tuple[int, int] | None:
    """Return device and inode of the file that a path resolves to, or None if there is no such file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _targets(output: Output) -> Iterator[_Target]:
    """Check an output, and yield all paths that it may create or replace."""
    if isinstance(output, OutputFile):
        _check_file(output)
        for path in (output.path, *(Path(f"{output.path}{end}") for end in output.companions)):
            yield _target(output.what, path)
        return
    _check_folder(output)
    yield _target(output.what, output.path)
    present = sorted(os.listdir(output.path)) if output.path.is_dir() else []
    for pattern in output.names:
        for name in [name for name in present if fnmatch(name, pattern)] or [pattern]:
            check_writable(output.path / name, output.what) if output.path.is_dir() else None
            yield _target(output.what, output.path / name)


def _target(what: str, path: Path) -> _Target:
    return _Target(what, path, os.path.realpath(path), identity_of(path))


def _check_file(output: OutputFile) -> None:
    what, path = output.what, output.path
    if output.suffixes and (path.name in output.suffixes or not path.name.endswith(output.suffixes)):
        raise BadInput(f"{what} must name a {' or '.join(output.suffixes)} file, got {path}")
    check_writable(path, what)
    if output.is_new and os.path.lexists(path):
        raise BadInput(f"{what} must be a new file, got {path} which exists")


def _check_folder(output: OutputFolder) -> None:
    """Raise BadInput unless the folder of an output exists and can be written, or can be created."""
    what, folder = output.what, output.path
    try:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{what} must be a folder, got the file {folder}")
        final = Path(os.path.realpath(folder))
        if not final.name:  # files are written to a folder next to it, and the root has no neighbour
            raise BadInput(f"{what} must be a folder below the root, got {folder}")
        if not final.parent.is_dir():
            raise BadInput(f"{what} must lie in a folder that exists, got {folder}")
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{what} cannot be {folder}: {cause}") from None
    # files are written next to the folder and then renamed into it
    for place in (final.parent, final):
        if place.exists() and not os.access(place, os.W_OK | os.X_OK):
            raise BadInput(
                f"{what} must be a folder that can be written, got {folder}: no permission in {place}"
            )


def _check_different(targets: Iterable[_Target]) -> None:
    """Raise BadInput if two outputs have the same path, or if those of two options are links to one file.

    Hard links to one file are allowed among the outputs of a single option.
    """
    by_path: dict[str, _Target] = {}
    by_identity: dict[tuple[int, int], _Target] = {}
    for target in targets:
        other = by_path.setdefault(target.real, target)
        if other is target and target.identity is not None:
            linked = by_identity.setdefault(target.identity, target)
            other = target if linked.what == target.what else linked
        if other is not target:
            raise BadInput(_same_file(other.what, target))


def _check_patterns(outputs: Iterable[Output], targets: Iterable[_Target]) -> None:
    """Raise BadInput if an output is in another option's output folder and matches one of its file names."""
    folders = {os.path.realpath(each.path): each for each in outputs if isinstance(each, OutputFolder)}
    for target in targets:
        parent, name = os.path.split(target.real)
        folder = folders.get(parent)
        if folder is None or folder.what == target.what:
            continue
        if any(fnmatch(name, pattern) for pattern in folder.names):
            raise BadInput(_same_file(folder.what, target))


def _same_file(other: str, target: _Target) -> str:
    names = f"{other} and {target.what}" if other != target.what else f"two outputs of {other}"
    return f"{names} would write the same file, {target.shown}: wanted two paths"
