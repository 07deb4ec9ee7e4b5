"""Check the tile kernel on a GPU, then time it in turn with cuBLAS."""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.on_gpu.check import Verdict, check, check_forms, random_inputs
from benchmarks.on_gpu.rotation import Sets, dense_contestants, input_sets, launcher, moved_bytes, rotation_of
from benchmarks.on_gpu.session import Session
from benchmarks.on_gpu.timing import Contestant, Sample, contestant, rotations, take_turns
from benchmarks.suite import build_all
from benchmarks.tile.cases import GPU, Case, full_cases, quick_cases, tile_map
from benchmarks.tile.report import line, print_tables
from prunecast.choice import fastest_plan
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.cuda.operator import TileOperator


def run(options: argparse.Namespace) -> int:
    """Check, time, print, write; the exit code."""
    session = Session(options.out / "tile.json", {k: str(v) for k, v in vars(options).items()})

    def work() -> None:
        if session.check(_checks(options.quick)):
            _time_all(options, session)

    done = session.run(work)
    print_tables(session.record)
    return 0 if done else 1


def _checks(quick: bool) -> dict[str, Callable[[], list[Verdict]]]:
    """The guarded build first: it traps where the plain one would hang."""
    return {
        "guarded": lambda: check_forms(quick=True, changes={"GUARD": 1}),
        "forms": lambda: check_forms(quick=quick, changes={}),
    }


def _time_all(options: argparse.Namespace, session: Session) -> None:
    cases = quick_cases() if options.quick else full_cases()
    plans = {case.name: fastest_plan("stspmm", tile_map(case), case.n, "fp16", GPU) for case in cases}
    build_all(plans.values())

    def timed(layer: str, stream: Any) -> list[dict[str, Any]]:
        return _time_layer([case for case in cases if case.layer == layer], plans, stream, options)

    session.time_layers(dict.fromkeys(case.layer for case in cases), options.seconds, timed)


def _time_layer(
    cases: list[Case], plans: dict[str, KernelPlan], stream: Any, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """All cases of one layer with its dense products, in turn."""
    entries: dict[str, dict[str, Any]] = {}
    contestants = _contestants(cases, plans, stream, entries)
    _complete(entries, take_turns(stream, contestants, options.turns))
    for entry in entries.values():
        print(line(entry), flush=True)
    return list(entries.values())


def _contestants(
    cases: list[Case],
    plans: dict[str, KernelPlan],
    stream: Any,
    entries: dict[str, dict[str, Any]],
) -> list[Contestant]:
    """Dense products and the tile kernel on all cases; adds what is to be known of each to `entries`."""
    sets = input_sets(*cases[0][:3])
    contestants = dense_contestants(stream, sets)
    for case in cases:
        plan = plans[case.name]
        own = f"{case.name} | tile"
        entries.setdefault(own, _entry(case, plan))
        contestants += _tile_contestants(own, plan, sets, stream, entries)
    return contestants


def _tile_contestants(
    own: str,
    plan: KernelPlan,
    sets: Sets,
    stream: Any,
    entries: dict[str, dict[str, Any]],
) -> list[Contestant]:
    """With and without overlapping launches, once the result has been found right."""
    inputs = random_inputs(plan, seed=11)
    operator = TileOperator.compile(plan, inputs.a)
    verdict = check(own, operator, inputs, runs=3)
    entries[own]["check"] = {**verdict._asdict(), "passes": verdict.passes}
    if not verdict.passes:
        print(f"  WRONG {verdict}", flush=True)
        return []
    del inputs
    count = rotations(moved_bytes(plan))
    rotation = rotation_of(operator, sets, count)

    def of(name: str, *, overlap: bool) -> Contestant:
        return contestant(name, stream, launcher(rotation, overlap=overlap), sets=count, clock=operator.clock)

    return [of(own, overlap=True), of(f"{own} | no-pdl", overlap=False)]


def _entry(case: Case, plan: KernelPlan) -> dict[str, Any]:
    return {
        "case": case._asdict(),
        "name": case.name,
        "layer": case.layer,
        "block": list(plan.shape),
        "blocks": plan.blocks,
        "items": plan.item_count,
        "split_items": int((plan.work.parts > 1).sum()),
        "density": plan.density,
        "fingerprint": plan.fingerprint(),
    }


def _complete(entries: dict[str, dict[str, Any]], samples: dict[str, Sample]) -> None:
    """Put the samples into the entries, beside the dense product."""
    dense = [s for name, s in samples.items() if "|" not in name]
    best = min(dense, key=lambda s: s.median)
    for own, entry in entries.items():
        entry.setdefault("dense_us", best.median * 1e6)
        entry.setdefault("dense_name", best.name)
        entry.setdefault("dense", {s.name: s.seconds for s in dense})
        for suffix, name in (("", own), ("_no_pdl", f"{own} | no-pdl")):
            if name in samples:
                entry[f"burst{suffix}"] = _result(samples[name], best)


def _result(sample: Sample, best: Sample) -> dict[str, Any]:
    return {
        "us": sample.median * 1e6,
        "speedup": best.median / sample.median,
        "dense_us": best.median * 1e6,
        "dense_name": best.name,
        "clock_mhz": float(np.median(sample.clock_mhz)) if sample.clock_mhz else None,
        "seconds": sample.seconds,
    }
