"""Documents of ours: JSON that any reader accepts, read back with checks."""

import json
from pathlib import Path
from typing import Any

from prunecast.errors import BadInput
from prunecast.files import MIB, parse_json, read_bytes

SCHEMA_VERSION = 1
LARGEST_DOCUMENT = 64 * MIB
"""A table of ten thousand layers and all kernels has 40 MiB."""


def json_text(document: dict[str, Any]) -> str:
    """JSON with a stable layout: the same document gives the same bytes. NaN and infinity are refused."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def read_document(path: str | Path, *, key: str) -> dict[str, Any]:
    """Read a JSON object of ours that must hold `key`.

    Raises
    ------
    BadInput : the file is missing, is no JSON, or is no such object of a schema that this version reads
    """
    try:
        document = parse_json(read_bytes(path, "a file of `prunecast --json`", most=LARGEST_DOCUMENT))
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} must be JSON, as `prunecast --json` writes it: {error}") from None
    if not isinstance(document, dict) or key not in document:
        raise BadInput(f"{path} must be a JSON object with {key!r}, as `prunecast --json` writes it")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise BadInput(
            f"{path}: schema_version must be {SCHEMA_VERSION}, got {document.get('schema_version')!r}"
        )
    return document
