"""Numbers that show how much there is to own, beside their limits: `python -m benchmarks.house`.

`--tasks` also runs the fixed commands (a minute), `--engines` compares the step times of both engines
(a minute). `--lower` sets limits in `pyproject.toml` that are above the numbers to them.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.house.builders import ROLES, builders
from benchmarks.house.constants import constants, has_source
from benchmarks.house.limits import Numbers, lowered, read_limits
from benchmarks.house.sources import PACKAGE, Source, granularity, read_sources, token_lines

ROOT = Path(__file__).resolve().parents[2]
NUMBER_ROOMS = ("kernels", "launch", "models")
"""Packages whose constants belong into files with value, unit, kind and source."""


def main() -> int:
    options = _options()
    counts = source_counts(ROOT, read_sources(ROOT))
    if options.tasks:
        from benchmarks.house.tasks import TASKS, task_counts

        counts["tasks"] = {title: n for task in TASKS for title, n in task_counts(task).items()}
    if options.engines:
        from benchmarks.house.engines import most_apart, print_step_times, step_times

        times = list(step_times())
        counts["engines"] = most_apart(times)
    project = ROOT / "pyproject.toml"
    limits = read_limits(project.read_text(encoding="utf-8"))
    _print(counts, limits)
    if options.engines:
        print_step_times(times)
    if options.lower:
        project.write_text(lowered(project.read_text(encoding="utf-8"), counts), encoding="utf-8")
    return 0


def source_counts(root: Path, sources: list[Source]) -> Numbers:
    """Return the numbers that are read from the sources of a checkout, by section and title."""
    found = [constant for room in NUMBER_ROOMS for constant in constants(root / PACKAGE / room)]
    sizes = granularity(sources)
    sizes["numeric constants without kind and source"] = sum(not has_source(constant) for constant in found)
    second = {role: len(places) for role, places in builders(sources).items()}
    return {"token-lines": token_lines(sources), "granularity": sizes, "builders": second}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", action="store_true", help="count what fixed commands enter")
    parser.add_argument("--engines", action="store_true", help="compare step times of both engines")
    parser.add_argument("--lower", action="store_true", help="set limits that are above the numbers to them")
    return parser.parse_args()


def _print(counts: Numbers, limits: Numbers) -> None:
    print("| | now | at most | |\n| --- | ---: | ---: | --- |")
    for section, numbers in counts.items():
        total = f"{sum(numbers.values()):,}" if section == "token-lines" else ""
        print(f"| **{section}** | {total} | | |")
        for title, number in numbers.items():
            limit = limits.get(section, {}).get(title, "")
            leaves = (
                f"second ones leave with {ROLES[title].removed_by}" if number > 1 and title in ROLES else ""
            )
            print(f"| {title} | {number:,} | {limit} | {leaves} |")


if __name__ == "__main__":
    sys.exit(main())
