"""What entries of the kernels' files of costs are worth: `python -m benchmarks.costs PACKAGE [NAMES]`.

For every entry: how much the mean error of each kernel grows, in points, where the entry is 0 (a ratio: where
it is 1 too), and how far predictions move where it is half as much again. Closed form, H200, a sample of the
recorded rows, nothing fitted anew, so that worth is overstated. `--all FACTOR` scales all entries at once.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from benchmarks.golden import sample
from prunecast.hardware import Costs, load_costs, load_gpu
from prunecast.plan.program import bind
from prunecast.validation.judged import Judged, judge_rows
from prunecast.validation.records import Measurement

GPU = load_gpu("h200-sxm")


def main() -> None:
    options = _options()
    costs = load_costs(options.package, GPU.compute_capability)
    rows = [row for row in sample(options.every) if not options.kernels or row.kernel in options.kernels]
    before = _judged(rows)
    if options.all:
        with scaled(costs, dict.fromkeys(costs.entries, options.all)):
            print(f"all x {options.all:g}:", _line(before, _judged(rows)))
        return
    for name in options.names or costs.entries:
        for factor in (0.0, 1.5):
            with scaled(costs, {name: factor}):
                print(f"{name} x {factor:g}:", _line(before, _judged(rows)), flush=True)


@contextmanager
def scaled(costs: Costs, factors: Mapping[str, float]) -> Iterator[None]:
    """Entries of costs multiplied meanwhile, in the very object that everything reads."""
    kept = costs.entries
    changed = {name: replace(cost, value=cost.value * factors.get(name, 1.0)) for name, cost in kept.items()}
    object.__setattr__(costs, "entries", changed)
    bind.cache_clear()
    try:
        yield
    finally:
        object.__setattr__(costs, "entries", kept)
        bind.cache_clear()


def _judged(rows: list[Measurement]) -> list[Judged]:
    return judge_rows(rows, GPU, engines=("model",))


def _line(before: list[Judged], after: list[Judged]) -> str:
    """Worth of each kernel that moves, and the 90th percentile of the change of all predictions."""
    errors: dict[str, list[tuple[float, float]]] = defaultdict(list)
    moved = []
    for old, new in zip(before, after, strict=True):
        if old.predicted and new.predicted:
            errors[old.family].append((abs(old.error("model")), abs(new.error("model"))))
            moved.append(abs(new.predicted["model"].seconds / old.predicted["model"].seconds - 1.0))
    worth = {kernel: 100 * float(np.mean([b - a for a, b in both])) for kernel, both in errors.items()}
    told = ", ".join(f"{kernel} {points:+.2f}" for kernel, points in worth.items() if abs(points) >= 0.005)
    return f"{told or 'nothing'}; moves 90 % of predictions by at most {100 * np.quantile(moved, 0.9):.1f} %"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", help="of the kernel, e.g. prunecast.kernels.tile")
    parser.add_argument("names", nargs="*", help="entries; all where none are named")
    parser.add_argument("--all", type=float, metavar="FACTOR", help="scale all entries at once")
    parser.add_argument("--every", type=int, default=12, help="take every so many rows of a kernel")
    parser.add_argument("--kernels", nargs="*", help="judge these kernels only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
