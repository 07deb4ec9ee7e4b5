"""Limits of the counters: `[tool.house.SECTION]` in `pyproject.toml`, one line a number.

A limit is the state that was reached. `lowered` writes a smaller number in the place of a larger limit;
raising one is a decision that somebody writes into the file by hand, with its reason in the commit.
"""

import re
import tomllib

Numbers = dict[str, dict[str, int]]
"""Section -> title -> number."""

ADVICE = (
    "Delete first what the change makes superfluous. Then write the remaining numbers into "
    "[tool.house.SECTION] by hand, with the reason in the message of the commit: no command raises a limit."
)
"""What to do about numbers above their limits."""


def read_limits(project: str) -> Numbers:
    """Return the limits in the text of a `pyproject.toml`."""
    found: Numbers = tomllib.loads(project)["tool"]["house"]
    return found


def above(counts: Numbers, limits: Numbers, otherwise: int = 0) -> list[str]:
    """One line for each number that is above its limit; without a limit it may be `otherwise`."""
    return [
        f"{section}, {title}: {number:,}, at most {limits.get(section, {}).get(title, otherwise):,}"
        for section, numbers in counts.items()
        for title, number in numbers.items()
        if number > limits.get(section, {}).get(title, otherwise)
    ]


def lowered(project: str, counts: Numbers) -> str:
    """Return the text with each limit that is above its count set to the count."""
    section, lines = "", []
    for line in project.splitlines(keepends=True):
        if line.startswith("["):
            section = line.strip().strip("[]").removeprefix("tool.house.")
        said = re.match(r'"(.+)" = (\d+)\b', line)
        number = counts.get(section, {}).get(said[1]) if said else None
        if said and number is not None and number < int(said[2]):
            line = f'"{said[1]}" = {number}{line[said.end() :]}'
        lines.append(line)
    return "".join(lines)
