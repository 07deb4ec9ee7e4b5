"""The version of the installed package. Below every floor, so that any output can carry it."""

from functools import cache


@cache
def tool_version() -> str:
    """Version of the installed distribution, or `0+unknown` for a bare source tree."""
    # Not at module level: it costs a third of the time that `prunecast --help` takes.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("prunecast")
    except PackageNotFoundError:
        return "0+unknown"
