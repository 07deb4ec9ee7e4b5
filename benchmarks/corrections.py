"""What is each launch correction worth? MAPE on recorded rows marked fit without it, less MAPE with it.

`python -m benchmarks.corrections` takes every `--every`-th fit row of each kernel for the closed form and
every `--simulated`-th for the simulator (0: none). Both sides are refitted: predictions of a kernel and state
may become `factor * seconds + floor`, which stand for its rates and its launch floor, with least mean error.
What is below 0.1 points on every kernel and state, in both engines, does not stay.

`--jointly` looks for the largest set that can be taken out of the closed form together: corrections correct
one another, so what each is worth alone does not tell. Half of the fit rows (`--every 2`) take ten
minutes of CPU.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.golden import sample
from benchmarks.house.tasks import forget_results
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan
from prunecast.launch import USUAL, LaunchContext
from prunecast.models import chip, estimate
from prunecast.simulator import simulate
from prunecast.validation.case_maps import map_of, measured_plan, recorded_fingerprint
from prunecast.validation.records import Measurement

Function = Callable[..., Any]
LEAST_ROWS = 20
"""Rows of a kernel and state below which a mean says nothing."""
MOST_LOST = 0.2
"""Points of MAPE that a kernel may lose to corrections taken out together."""


class Correction(NamedTuple):
    """A correction: what is called in place of its function where it is taken out."""

    name: str
    function: str
    """`module.name` below `prunecast`."""
    instead: Function


def zero(*_: Any, **__: Any) -> float:
    """In place of cycles or seconds."""
    return 0.0


def never(*_: Any, **__: Any) -> bool:
    """In place of a question."""
    return False


def one(*_: Any, **__: Any) -> float:
    """In place of a factor."""
    return 1.0


def _read_latency(context: LaunchContext) -> int:
    return context.gpu.store_latency_cycles


CORRECTIONS = (
    Correction("head start", "launch.context.prologue_under_preceding_cycles", zero),
    Correction("early start", "launch.context.prologue_is_hidden", never),
    Correction("reads in step", "launch.context.l2_power", one),
    Correction("placement", "hardware.placement.expected_places", lambda columns, fit, sms: None),
    Correction("burst of placements", "hardware.placement.burst_placements", lambda blocks, fit, sms: ()),
    Correction("resident share", "hardware.placement.resident_share", one),
    Correction("straggler", "launch.overlap.straggler_cycles", zero),
    Correction("straggler credit", "launch.overlap.straggler_credit_scale", zero),
    Correction("store latency", "launch.context.store_latency_cycles", _read_latency),
    Correction("further launches", "launch.floor.beside_s", zero),
    Correction("prefetch before B", "simulator.launch_gap.with_prefetch", lambda context: context.programs),
    Correction("prefetched blocks", "launch.memory._early_blocks", zero),
    Correction("write-back by reads", "launch.memory._write_back", zero),
    Correction("posted prefetch", "models.prefetch.posted_bytes", zero),
    Correction("own prefetch", "models.prefetch.unposted_bytes", zero),
    Correction("first ring at DRAM", "launch.memory._weights_first", zero),
    Correction("rounds of blocks", "models.chip._between_cycles", zero),
    Correction("first wave reads most", "models.chip._wave_shares", lambda waves, cycles: chip._ONE_WAVE),
    Correction("clock by busy share", "hardware.clock.busy_share", one),
    Correction("early starts", "launch.memory.early_starts", zero),
)


class Row(NamedTuple):
    """A recorded time, and the plan that it is a time of."""

    measured: Measurement
    plan: KernelPlan


def main() -> int:
    """Print a table for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=3, help="fit rows of a kernel for the closed form")
    parser.add_argument("--simulated", type=int, default=24, help="fit rows of a kernel for the simulator")
    parser.add_argument("--only", default="", help="corrections whose name has this text")
    parser.add_argument("--jointly", action="store_true", help="look for the largest set instead")
    options = parser.parse_args()
    gpu = load_gpu("h200-sxm")
    chosen = [correction for correction in CORRECTIONS if options.only in correction.name]
    if options.jointly:
        _report_jointly(_planned(options.every, gpu), chosen, gpu)
        return 0
    for engine, every in ((estimate, options.every), (simulate, options.simulated)):
        if every:
            _report(engine, _planned(every, gpu), chosen, gpu)
    return 0


def _planned(every: int, gpu: GpuSpec) -> list[Row]:
    """Every so many fit rows of each kernel whose plan this version makes."""
    rows, maps = [], {}
    for row in sample(every, "fit"):
        case = row.case
        key = (case.m, case.k, case.pattern, case.sparsity, case.distribution, case.seed)
        try:
            if key not in maps:
                maps = {key: map_of(case)}
            plan = measured_plan(row, maps[key], gpu)
        except BadInput:
            continue
        if not row.plan or row.plan == recorded_fingerprint(plan):
            rows.append(Row(row, plan))
    return rows


def _report(engine: Function, rows: list[Row], corrections: list[Correction], gpu: GpuSpec) -> None:
    groups = _groups(rows)
    base = _errors(engine, rows, gpu, groups)
    print(f"{engine.__name__}, {len(rows)} rows: points of MAPE that a correction is worth")
    print(f"{'':24}" + "".join(f"{name:>14}" for name in groups))
    print(f"{'rows':24}" + "".join(f"{len(members):14}" for members in groups.values()))
    print(
        f"{'MAPE':24}" + "".join(f"{base[members].mean():14.2f}" for members in groups.values()), flush=True
    )
    for correction in corrections:
        with without(correction):
            worse = _errors(engine, rows, gpu, groups) - base
        told = "".join(f"{worse[members].mean():14.2f}" for members in groups.values())
        most = max(abs(worse[members].mean()) for members in groups.values())
        print(f"{correction.name:24}{told}{'   below 0.1' if most < 0.1 else ''}", flush=True)


def _report_jointly(rows: list[Row], corrections: list[Correction], gpu: GpuSpec) -> None:
    groups = {name: members for name, members in _groups(rows).items() if members.size >= LEAST_ROWS}
    base = _errors(estimate, rows, gpu, groups)

    def lost(removed: Sequence[Correction]) -> dict[str, float]:
        with ExitStack() as stack:
            for correction in removed:
                stack.enter_context(without(correction))
            worse = _errors(estimate, rows, gpu, groups) - base
        points = {name: float(worse[members].mean()) for name, members in groups.items()}
        names = ", ".join(correction.name for correction in removed)
        print(f"{max(points.values()):.2f} without {names}", file=sys.stderr, flush=True)
        return points

    removed = removable(corrections, lambda chosen: max(lost(chosen).values()))
    print(f"{len(removed)} of {len(corrections)} corrections can go together, {len(rows)} rows:")
    print("\n".join(f"  {correction.name}" for correction in removed))
    print("points lost:", ", ".join(f"{name} {points:.2f}" for name, points in lost(removed).items()))


def removable(
    corrections: Sequence[Correction], lost: Callable[[Sequence[Correction]], float]
) -> list[Correction]:
    """Find corrections that can be taken out together, the cheapest first, until none more can.

    Parameters
    ----------
    lost : points of MAPE that the kernel that suffers most loses without a set of corrections
    """
    removed: list[Correction] = []
    order = sorted(corrections, key=lambda correction: lost([correction]))
    while True:
        before = len(removed)
        for correction in order:
            if correction not in removed and lost([*removed, correction]) <= MOST_LOST:
                removed.append(correction)
        if len(removed) == before:
            return removed


def _groups(rows: list[Row]) -> dict[str, np.ndarray]:
    found: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        state = "" if row.measured.case.conditions == USUAL else " *"
        found[row.measured.kernel + state].append(place)
    return {name: np.array(found[name]) for name in sorted(found)}


def _errors(engine: Function, rows: list[Row], gpu: GpuSpec, groups: dict[str, np.ndarray]) -> np.ndarray:
    """(rows,): percent by which each prediction lies off after the refit of its group."""
    states = [row.measured.case.conditions.state for row in rows]
    found = np.array([engine(row.plan, gpu, state=at).seconds for row, at in zip(rows, states, strict=True)])
    measured = np.array([float(row.measured.seconds or 1.0) for row in rows])
    errors = np.empty(len(rows))
    for members in groups.values():
        errors[members] = refitted_errors(found[members], measured[members])
    return errors


def refitted_errors(found: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Percent by which `factor * found + floor` lies off `measured`, with least mean: reweighted squares."""
    columns = np.stack([found, np.full(found.size, np.median(found))], axis=1) / measured[:, None]
    weights, best = np.ones(found.size), np.abs(found / measured - 1.0)
    for _ in range(40):
        scaled = columns * np.sqrt(weights)[:, None]
        solution = np.linalg.lstsq(scaled, np.sqrt(weights), rcond=1e-6)[0]
        off = np.abs(columns @ solution - 1.0)
        best = min(best, off, key=np.mean)
        weights = 1.0 / np.maximum(off, 1e-3)
    return 100.0 * best


@contextmanager
def without(correction: Correction) -> Iterator[None]:
    """Take a correction out wherever its function has been imported to."""
    room, name = correction.function.rsplit(".", 1)
    function = getattr(import_module(f"prunecast.{room}"), name)
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if module and module.__name__.startswith("prunecast") and vars(module).get(name) is function:
                stack.enter_context(mock.patch.object(module, name, correction.instead))
        forget_results()
        stack.callback(forget_results)
        yield


if __name__ == "__main__":
    sys.exit(main())
