"""Sections of an explanation: named numbers with units, with the order and terms of a GPU profiler."""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.codesign.prediction import Prediction
from prunecast.hardware import GpuSpec, Occupancy
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.launch.floor import padded_copy_seconds, zero_row_seconds
from prunecast.plan.program import Op, number_of
from prunecast.plan.tensor_rate import fma_per_clk
from prunecast.simulator import PIPES, SimResult
from prunecast.workload.engines import Outcome

COMPUTE_PIPES = ("tensor", "issue")
MEMORY_PIPES = ("shared", "l2 port", "l2", "dram")
HISTOGRAM_BINS = 8
TIME_PARTS = "Where the time goes"
"""Title of the section whose facts add up to the predicted time; only simulated predictions have it."""


class Fact(NamedTuple):
    """One named number (or word) of a section, with its unit."""

    name: str
    value: float | int | str
    unit: str


class Section(NamedTuple):
    """A titled group of facts."""

    title: str
    facts: tuple[Fact, ...]


IDLE_FROM, LAUNCH_FROM, SATURATED_FROM, UNEVEN_FROM = 0.1, 0.4, 0.7, 1.25
"""Thresholds from which a verdict names a limit: share of SMs without work, launch overhead as a share of the
time, share of the time in which a unit is busy, and work of the busiest SM over the mean. Kind: choice."""
UNIT_WORDS = {
    "tensor": "the tensor cores",
    "issue": "the issue slots of the schedulers",
    "shared": "shared memory",
    "l2 port": "the ports to L2",
    "l2": "L2",
    "dram": "DRAM",
}


def verdict_of(prediction: Prediction, gpu: GpuSpec) -> str:
    """Return one sentence that names what limits the predicted time: a unit, the launch, or uneven work."""
    plan, result, use = prediction.plan, prediction.result, _use_of_pipes(prediction.result)
    if isinstance(result, SimResult):
        work = result.sm_busy_cycles
        idle = gpu.sm_count - int(np.count_nonzero(result.sm_items))
    else:  # the closed form does not give the work of each SM
        work = np.ones(1)
        idle = gpu.sm_count - min(plan.blocks, plan.item_count, gpu.sm_count)
    launch, uneven = result.launch_s / prediction.seconds, float(work.max()) / max(float(work.mean()), 1.0)
    pipe = max(use, key=lambda name: use[name])
    unit, share = UNIT_WORDS.get(pipe, pipe), use[pipe]
    if share >= SATURATED_FROM:
        return f"Limited by {unit}, busy {share:.0%} of the time"
    if idle >= IDLE_FROM * gpu.sm_count:
        return f"{plan.blocks} blocks leave {idle} of {gpu.sm_count} SMs idle: too small a layer for this GPU"
    if launch >= LAUNCH_FROM:
        return f"The launch is {launch:.0%} of the time: too small a layer for this GPU"
    if uneven >= UNEVEN_FROM:
        return f"Limited by uneven work: the busiest SM has {uneven:.2f} times the mean"
    return f"Limited by latency: the busiest unit, {unit}, is busy only {share:.0%} of the time"


def _use_of_pipes(result: Outcome) -> dict[str, float]:
    """Return pipe -> share of the time in which it is busy; for the closed form, a lower bound of it."""
    if isinstance(result, SimResult):
        return result.utilisation
    return {pipe: result.bound_cycles[pipe] / result.cycles for pipe in PIPES}


def sections_of(prediction: Prediction, gpu: GpuSpec) -> tuple[Section, ...]:
    """Return all sections for which the result of the engine (simulator or closed form) has data."""
    plan, result, use = prediction.plan, prediction.result, _use_of_pipes(prediction.result)
    sections = [
        _speed_of_light(prediction, gpu, use),
        _roofline(prediction, gpu, use),
        _occupancy(plan, result.occupancy),
    ]
    if isinstance(result, SimResult):
        stalls = sorted(result.stalls.items(), key=lambda stall: -stall[1])
        facts = tuple(Fact(name, 100 * share, "% of warp cycles") for name, share in stalls)
        sections += [_work_distribution(result), Section("Warp stalls", facts)]
        sections.append(_attribution(result, plan, gpu))
    else:
        waves = Fact("waves", result.waves, "count")
        balance = Fact("balance, mean over most work per SM", result.balance, "ratio")
        sections.append(Section("Work distribution over SMs", (waves, balance)))
    return (*sections, _costs_of_a_step(plan, gpu))


def _costs_of_a_step(plan: KernelPlan, gpu: GpuSpec) -> Section:
    """Return the section with the instructions of a warp of each role in a full k-step, and the costs that
    are added to them, each with the kind of its number. Costs with a condition (`When`) name it.
    """
    costs, found = KERNELS[plan.kernel].costs_on(gpu), defaultdict[tuple[str, str], float](float)
    sources: dict[str, Any] = {**gpu.provenance, **(costs.entries if costs else {})}
    for program in plan.programs:
        for i in program.step:
            groups = plan.shape.block_k // 16 if i.per_k16 else 1
            when = f", {i.when.name.lower()}" if i.when else ""
            if i.issue:
                found[f"{program.role}: instructions, by hand{when}", "instruction"] += i.issue * groups
            units = {"issue": "instruction", "amount": "cycle" if i.op is Op.ISSUE else "byte"}
            for charge in i.charges:
                name = f"{program.role}: {charge.name}, {sources[charge.name].kind}{when}"
                value = charge.times * number_of(charge.name, costs, gpu) * groups
                found[name, units.get(charge.field, "byte")] += value
    return Section(
        "Costs of a k-step", tuple(Fact(name, value, unit) for (name, unit), value in found.items())
    )


def _speed_of_light(prediction: Prediction, gpu: GpuSpec, use: dict[str, float]) -> Section:
    result = prediction.result
    others = _other_launches(prediction.plan, gpu)
    return Section(
        "Speed of light",
        (
            Fact("compute throughput", 100 * max(use[pipe] for pipe in COMPUTE_PIPES), "%"),
            Fact("memory throughput", 100 * max(use[pipe] for pipe in MEMORY_PIPES), "%"),
            Fact("duration", 1e6 * prediction.seconds, "us"),
            Fact("SM cycles", round(result.cycles), "cycle"),
            Fact("SM clock", result.clock_hz / 1e6, "MHz"),
            Fact("launch floor", 1e6 * result.launch_s, "us"),
            *(Fact(f"of it, {name}", 1e6 * seconds, "us") for name, seconds in others.items()),
        ),
    )


def _roofline(prediction: Prediction, gpu: GpuSpec, use: dict[str, float]) -> Section:
    plan, result = prediction.plan, prediction.result
    operations = 2.0 * plan.m * plan.k * plan.density * plan.n
    peak = 2.0 * gpu.sm_count * fma_per_clk(gpu, plan.dtype, plan.tensor) * result.clock_hz
    facts = [
        Fact("useful work", operations / 1e9, "GFLOP"),
        Fact("attained", operations / prediction.seconds / 1e12, "TFLOP/s"),
        Fact("compute ceiling", peak / 1e12, "TFLOP/s"),
    ]
    if isinstance(result, SimResult):
        for level, moved, rate in (
            ("L2", result.l2_bytes, gpu.l2_bytes_per_s),
            ("DRAM", result.dram_bytes, gpu.dram_bytes_per_s),
        ):
            intensity = operations / max(moved, 1)
            facts.append(Fact(f"{level} traffic", moved / 1e6, "MB"))
            facts.append(Fact(f"{level} arithmetic intensity", intensity, "FLOP/byte"))
            facts.append(Fact(f"{level} ceiling", intensity * rate / 1e12, "TFLOP/s"))
        facts.append(Fact("L2 hit rate", 100 * result.l2_hit_rate, "%"))
    facts += [Fact(f"{pipe} busy", 100 * use[pipe], "%") for pipe in PIPES]
    facts.append(Fact("bound", prediction.bound, ""))
    return Section("Roofline", tuple(facts))


def _occupancy(plan: KernelPlan, occupancy: Occupancy) -> Section:
    facts = [
        Fact("blocks per SM", occupancy.blocks_per_sm, "count"),
        Fact("warps per SM", occupancy.warps_per_sm, "count"),
        Fact("occupancy", 100 * occupancy.share, "%"),
        Fact("limiter", occupancy.limiter, ""),
    ]
    facts += [Fact(f"block limit, {name}", limit, "count") for name, limit in occupancy.limits.items()]
    facts += [
        Fact("registers per thread", plan.resources.registers_per_thread, "count"),
        Fact("shared memory per block", plan.resources.shared_bytes / 1024, "KiB"),
        Fact("blocks launched", plan.blocks, "count"),
        Fact("work items", plan.item_count, "count"),
    ]
    return Section("Occupancy", tuple(facts))


def _work_distribution(result: SimResult) -> Section:
    items, tensor = result.sm_items, result.sm_tensor_cycles
    work = tensor if tensor.any() else result.sm_busy_cycles
    name = "tensor cycles" if tensor.any() else "busy cycles"
    facts = [*_spread("items per SM", items, "count"), *_spread(f"{name} per SM", work, "cycle")]
    mean = float(work.mean())
    facts.append(Fact("imbalance, most over mean", float(work.max()) / mean if mean else 1.0, "ratio"))
    counts, edges = np.histogram(work, bins=HISTOGRAM_BINS, range=(0, max(int(work.max()), 1)))
    facts += [
        Fact(f"SMs with {edges[i]:.0f} to {edges[i + 1]:.0f} {name}", int(count), "count")
        for i, count in enumerate(counts)
    ]
    return Section("Work distribution over SMs", tuple(facts))


def _spread(name: str, values: npt.NDArray[np.int64], unit: str) -> list[Fact]:
    return [
        Fact(f"{name}, least", int(values.min()), unit),
        Fact(f"{name}, mean", float(values.mean()), unit),
        Fact(f"{name}, most", int(values.max()), unit),
    ]


def _other_launches(plan: KernelPlan, gpu: GpuSpec) -> dict[str, float]:
    """Return the seconds of the extra kernels of a plan, by purpose."""
    found = {
        "rows of zeros (second launch)": zero_row_seconds(plan, gpu),
        "copies to padded rows (two launches)": padded_copy_seconds(plan, gpu),
    }
    return {name: seconds for name, seconds in found.items() if seconds}


def _attribution(result: SimResult, plan: KernelPlan, gpu: GpuSpec) -> Section:
    """Return the section with the parts of the time.

    Extra kernels have their own entries; their time is subtracted from the entry "launch".
    """
    others = _other_launches(plan, gpu)
    parts = dict(result.attribution_s)
    parts |= {"launch": parts["launch"] - sum(others.values())} | others
    facts = [Fact(name, 1e6 * seconds, "us") for name, seconds in parts.items()]
    return Section(TIME_PARTS, tuple(facts))
