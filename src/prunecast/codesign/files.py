"""Files of ours: JSON that any reader accepts, written aside and renamed, read back with checks."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prunecast.errors import BadInput

__all__ = ["SCHEMA_VERSION", "folder_aside", "json_text", "read_document", "write_text_aside"]

SCHEMA_VERSION = 1


def json_text(document: dict[str, Any]) -> str:
    """JSON with a stable layout: the same document gives the same bytes. NaN and infinity are refused."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def write_text_aside(path: Path, text: str) -> None:
    """Write `path` so that it holds either its old content or all of the new.

    Raises
    ------
    BadInput : the file cannot be written
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # a name of a tensor may hold half of a character, which UTF-8 cannot
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(aside, path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def folder_aside(folder: Path, *, last: str) -> Iterator[Path]:
    """A new folder whose files become those of `folder` when the block ends without an error.

    A folder that is not there yet appears with all its files at once. In one that is there, `last` goes
    first and comes last: whoever finds it finds the files that belong to it, whenever this was killed.

    Raises
    ------
    BadInput : the folder cannot be written; an error inside the block leaves what was there
    """
    final = folder.absolute()
    aside = final.with_name(f".{final.name}.{uuid.uuid4().hex}")
    try:
        aside.mkdir()
        yield aside
        if not final.exists():
            os.replace(aside, final)
            return
        (final / last).unlink(missing_ok=True)
        for name in sorted(os.listdir(aside), key=lambda name: (name == last, name)):
            os.replace(aside / name, final / name)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_document(path: str | Path, *, key: str) -> dict[str, Any]:
    """Read a JSON object of ours that must hold `key`.

    Raises
    ------
    BadInput : the file is missing, is no JSON, or is no such object of a schema that this version reads
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} must be JSON, as `prunecast --json` writes it: {error}") from None
    if not isinstance(document, dict) or key not in document:
        raise BadInput(f"{path} must be a JSON object with {key!r}, as `prunecast --json` writes it")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version must be {SCHEMA_VERSION}, got {document.get('schema_version')!r}"
        )
    return document


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
