"""Version of the installed package. Any module may import this one, since it imports none of the project."""

from functools import cache


@cache
def tool_version() -> str:
    """Return the version of the installed distribution, or `0+unknown` for a bare source tree."""
    # Not at module level: the import is a third of the time of `prunecast --help`.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("prunecast")
    except PackageNotFoundError:
        return "0+unknown"
