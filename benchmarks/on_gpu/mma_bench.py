"""What the two commands for kernels through mma.sync share: arguments, the run, entries and the table."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_cases import LARGE, Case
from benchmarks.gpu_check import Verdict
from benchmarks.gpu_mma_cases import Check
from benchmarks.gpu_time import Contestant, Sample, take_turns
from benchmarks.on_gpu.dense_contestants import dense_contestants
from benchmarks.on_gpu.rotation import Sets, input_sets
from benchmarks.on_gpu.session import Session

__all__ = ["RUNS", "Entries", "MmaBench", "mma_checks", "mma_parser", "print_best", "print_said", "run_mma"]

RUNS = 20
"""Of a persistent grid in a check, which must agree bit by bit."""
Entries = dict[str, dict[str, Any]]


class MmaBench(NamedTuple):
    """What differs."""

    file: str
    checks: Mapping[str, Callable[[], Iterable[Verdict]]]
    """By name; the guarded build is called `guarded` and comes first."""
    cases: list[Case]
    contestants: Callable[[Case, Sets, Any, Entries], list[Contestant]]
    """A case with its dense inputs on a stream; adds what is to be known of each to the entries."""
    print_table: Callable[[dict[str, Any]], None]


def mma_checks(
    check: Callable[[Check, dict[str, int]], Verdict],
    ending: Callable[[Check, str], Verdict],
    *,
    guarded: Iterable[Check],
    plain: Iterable[Check],
    endings: Iterable[Check],
) -> dict[str, Callable[[], Iterable[Verdict]]]:
    """The guarded build first: it traps where the plain one would hang."""
    return {
        "guarded": lambda: (check(one, {"GUARD": 1}) for one in guarded),
        "plain": lambda: (check(one, {}) for one in plain),
        "endings": lambda: (ending(one, a) for one in endings for a in ("none", "relu", "gelu")),
    }


def mma_parser(description: str | None, *, turns: int, seconds: float) -> argparse.ArgumentParser:
    """Arguments of both."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--seconds", type=float, default=seconds, help="start no layer after this long")
    parser.add_argument("--layers", default="", help="some of them, e.g. 4096x4096x4096; all if empty")
    parser.add_argument("--no-checks", action="store_true")
    return parser


def run_mma(bench: MmaBench, options: argparse.Namespace, *, anyway: bool = False) -> int:
    """Check, time, print, write; the exit code."""
    os.environ["PRUNECAST_CACHE"] = str((options.prepared / "cubin").resolve())
    session = Session(options.out / bench.file, sys.argv[1:])

    def work() -> None:
        if options.no_checks or session.check(bench.checks, first="guarded") or anyway:
            _time_all(bench, options, session)

    done = session.run(work)
    bench.print_table(session.record)
    return 0 if done and all(c["passes"] for c in session.record["checks"]) else 1


def _time_all(bench: MmaBench, options: argparse.Namespace, session: Session) -> None:
    layers = dict.fromkeys(case.layer for case in bench.cases)
    wanted = options.layers.split(",") if options.layers else layers

    def timed(layer: str, stream: Any) -> list[dict[str, Any]]:
        own = [case for case in bench.cases if case.layer == layer]
        return _time_layer(bench, own, stream, options.turns)

    session.time_layers([layer for layer in layers if layer in wanted], options.seconds, timed)


def _time_layer(bench: MmaBench, own: list[Case], stream: Any, turns: int) -> list[dict[str, Any]]:
    """All cases of a layer with its dense products, in turn."""
    sets = input_sets(*own[0][:3])
    dense = dense_contestants(stream, sets)
    entries: Entries = {}
    pruned = [one for case in own for one in bench.contestants(case, sets, stream, entries)]
    samples = take_turns(stream, [*dense, *pruned], turns)
    _complete(entries, samples, {c.name: samples[c.name].median * 1e6 for c in dense})
    return list(entries.values())


def _complete(entries: Entries, samples: dict[str, Sample], dense: dict[str, float]) -> None:
    best = min(dense, key=dense.__getitem__)
    for name in entries.keys() & samples.keys():
        sample = samples[name]
        entries[name] |= {
            "us": sample.median * 1e6,
            "seconds": sample.seconds,
            "mhz": float(np.median(sample.clock_mhz)) if sample.clock_mhz else None,
            "dense": dense,
            "dense_name": best,
            "dense_us": dense[best],
            "speedup": dense[best] / (sample.median * 1e6),
        }


def print_best(
    record: dict[str, Any], columns: str, kept: Callable[[float], float], share: Callable[[float], str]
) -> list[dict[str, Any]]:
    """The best of all heights and forms of every layer and density; the entries that were timed.

    Parameters
    ----------
    columns : names of the second and the fourth column
    kept : of a density of the tiles, that of the weights
    share : what the second column says of a density of the tiles
    """
    print(f"\n{record['device']['nvidia-smi']}")
    right = sum(c["passes"] for c in record["checks"])
    print(f"checks: {right} of {len(record['checks'])} right")
    second, fourth = columns.split()
    print(f"{'layer':<18} {second:>6} {'dense':>8} {fourth:>8} {'x':>6} {'said':>8} {'MHz':>5}  tiles, form")
    timed = [e for e in record["cases"] if "us" in e]
    speedups: dict[tuple[str, float], float] = {}
    for layer, density in dict.fromkeys((_layer(e), e["case"]["density"]) for e in timed):
        own = [e for e in timed if (_layer(e), e["case"]["density"]) == (layer, density)]
        best = min((e for e in own if not e.get("variant")), key=lambda e: e["us"])
        speedups[layer, kept(density)] = best["speedup"]
        times = f"{best['dense_us']:>8.1f} {best['us']:>8.1f} {best['speedup']:>5.2f}x"
        said = f"{best['predicted_us']:>8.1f} {best['mhz'] or 0:>5.0f}"
        print(f"{layer:<18} {share(density):>6} {times} {said}  {best['case']['rows']}, {best['form']}")
    _print_means(speedups)
    return timed


def _layer(entry: dict[str, Any]) -> str:
    case = entry["case"]
    return f"{case['m']}x{case['k']}x{case['n']}"


def _print_means(speedups: dict[tuple[str, float], float]) -> None:
    large = {"x".join(map(str, layer)) for layer in LARGE}
    for title, wanted in (("five large", large), ("all layers", {layer for layer, _ in speedups})):
        for density in dict.fromkeys(d for _, d in speedups):
            own = [s for (layer, d), s in speedups.items() if d == density and layer in wanted]
            if own:
                mean = float(np.exp(np.mean(np.log(own))))
                print(f"{title}, {1 - density:.0%} sparse: {mean:.2f}x ({len(own)} layers)")


def print_said(timed: list[dict[str, Any]]) -> None:
    """How far the simulator was off."""
    said = [np.log(e["predicted_us"] / e["us"]) for e in timed]
    if said:
        mean = 100 * np.expm1(np.mean(np.abs(said)))
        print(f"simulator: mean |error| {mean:.1f} %, bias {100 * np.expm1(np.mean(said)):+.1f} %")
