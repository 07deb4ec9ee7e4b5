"""Files of ours: JSON that any reader accepts, written aside and renamed, read back with checks."""

import json
import os
from pathlib import Path
from typing import Any

from prunecast.errors import BadInput

__all__ = ["SCHEMA_VERSION", "json_text", "read_document", "write_text_aside"]

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
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)


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
        raise BadInput(f"{path} must be JSON: {error}") from None
    if not isinstance(document, dict) or key not in document:
        raise BadInput(f"{path} must be a JSON object with {key!r}, as `prunecast --json` writes it")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version must be {SCHEMA_VERSION}, got {document.get('schema_version')!r}"
        )
    return document


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")
