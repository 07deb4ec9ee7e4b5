"""Version of the installed package. Any module may import this one, since it imports none of the project."""

from collections.abc import Mapping
from functools import cache
from typing import Any

SCHEMA_VERSION = 1
"""Version of the JSON documents of the command line."""


@cache
def tool_version() -> str:
    """Return the version of the installed distribution, or `0+unknown` for a bare source tree."""
    # Not at module level: the import is a third of the time of `prunecast --help`.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("prunecast")
    except PackageNotFoundError:
        return "0+unknown"


def headed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return `document` as a JSON object that begins with the versions of the schema and of the tool."""
    return {"schema_version": SCHEMA_VERSION, "version": tool_version(), **document}
