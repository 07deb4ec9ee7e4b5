"""Loader for patterns, kernels and GPUs that other installed packages provide as entry points.

A package lists them in its `pyproject.toml` under `[project.entry-points."prunecast.patterns"]`,
`"prunecast.kernels"` or `"prunecast.gpus"`. The page `docs/howto/add_your_own.md` has an example.
"""

from importlib.metadata import entry_points
from typing import Any

from prunecast.errors import BadInput


def load_installed(group: str, kind: type) -> dict[str, Any]:
    """Import the objects of an entry point group and return name -> object, sorted by name.

    Parameters
    ----------
    group : name of the group, for example "prunecast.patterns"
    kind : type that each object must be an instance of

    Raises
    ------
    BadInput : an object cannot be imported or has another type. The message names package and entry point.
    """
    found = {}
    for entry in sorted(entry_points(group=group)):
        owner = (
            f"entry point {entry.name} = {entry.value} of {entry.dist.name if entry.dist else 'a package'}"
        )
        try:
            found[entry.name] = entry.load()
        except Exception as error:  # the code of another package may raise anything
            raise BadInput(f"{owner} ({group}) cannot be loaded: {error}") from error
        if not isinstance(found[entry.name], kind):
            raise BadInput(f"{owner} ({group}) must be a {kind.__name__}, got {found[entry.name]!r}")
    return found
