"""Physics as laws on layers drawn at random for eight GPUs, and how far a prediction goes against a law.

python -m tests.laws [--cases 50] [--first 0] [--engines model simulator] [--laws LAW ...]
    [--seconds 600] [--processes 16] [--findings FILE]

prints, for each engine and law, the number of draws, those that go against the law by more than is allowed,
and the worst. `--findings` appends each of those to a file when it is found, one JSON object per line, and
`--first SEED --cases 1` repeats it. A law compares the times of two runs, of which one cannot be longer:

* of a plan on a GPU and on a better one (`HARDWARE`);
* of a layer and of one with less work, with the same config (`LESS_WORK`);
* of both with plans chosen anew, called "..., new plan" (`ANEW`). The closed form chooses, so that these laws
  hold in the simulator only up to the difference between both engines (`CHOICE`);
* of a plan under other conditions (`OTHERS`).

List scheduling has anomalies (Graham, 1969): blocks that end earlier can change the SM or the warp that works
next, and the launch then ends later. This is so on a GPU too. `longer` therefore compares the time per item
of the busiest SM if that gets more items than before, and in the closed form, if that gets more work, the
time per work. A run that is longer by one order of warps only is an anomaly, if it is longer by no more than
the order of warps changes the first run, or if the best orders of both runs obey the law: the order then
costs the second run time that it need not cost.
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.agreement import NEAR
from prunecast.choice import PrunedMap, fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.launch import launch_context
from prunecast.models import bound_cycles, estimate
from prunecast.models.case import Estimate
from prunecast.patterns import parse_pattern, weigh
from prunecast.patterns.plain import DENSE_TILE_HEIGHT
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.program import SECTIONS, Code, Instruction, Op
from prunecast.simulator import POLICIES, SimResult
from prunecast.workload.engines import simulate

__all__ = ["ALLOWED", "ENGINES", "GPUS", "LAWS", "Case", "allowed", "draw_of", "excess", "findings_of"]

# The laws of a draw share its plans and runs
ENGINES = {"model": lru_cache(32)(estimate), "simulator": lru_cache(32)(simulate)}
GPUS = ("h200-sxm", "h100-sxm", "b200", "a100-sxm4-40gb", "rtx-4090", "t4", "v100-sxm2-16gb", "gtx-1080-ti")
SIMULATED = 2**27
"""Multiplications up to which a case is small enough to be simulated."""


class Case(NamedTuple):
    """One layer, its pruning and what runs it."""

    kernel: str
    pattern: str
    m: int
    k: int
    n: int
    sparsity: float | None
    seed: int
    gpu: GpuSpec

    @property
    def dtype(self) -> str:
        """Half precision where the GPU has tensor cores for it."""
        return "fp16" if self.gpu.tensor_fp16_fma_per_clk_per_sm else "fp32"

    @property
    def text(self) -> str:
        """The case in one line."""
        sizes = f"{self.m}x{self.k}x{self.n}"
        return f"{self.gpu.name} {self.kernel} {self.pattern} {self.sparsity} {sizes} #{self.seed}"

    @lru_cache(32)  # noqa: B019, cases are small
    def plan(self) -> KernelPlan:
        """Raises BadInput where the kernel cannot run it."""
        return fastest_plan(self.kernel, self.kept(), self.n, self.dtype, self.gpu)

    def plan_with(self, config: object) -> KernelPlan:
        """The fastest plan with a config. Raises BadInput where the kernel has none."""
        return fastest_plan(
            self.kernel, self.kept(), self.n, self.dtype, self.gpu, allowed=lambda one: one == config
        )

    def kept(self) -> PrunedMap:
        """The map of the weights that the layer keeps."""
        if self.pattern == "dense":
            return dense_tile_map(self.m, self.k, DENSE_TILE_HEIGHT)
        pattern = parse_pattern(self.pattern)
        weights = np.random.default_rng(self.seed).standard_normal((self.m, self.k), np.float32)
        return pattern.map(pattern.prune({"a": weigh("a", weights)}, self.sparsity)["a"])


@cache
def spec(name: str) -> GpuSpec:
    """The GPU of this name, loaded once."""
    return load_gpu(name)


def drawn(kernel: str, seed: int, gpu: str = "h200-sxm") -> Case:
    """A layer of 64 to 2048 rows and columns, tokens in whole vectors."""
    draw = random.Random(f"{kernel} {seed}" if gpu == "h200-sxm" else f"{kernel} {seed} {gpu}")
    known = KERNELS[kernel]
    pattern = known.natural_pattern
    m, k = (draw.choice((64, 128, 192, 256, 512, 1000, 1024, 2048)) for _ in range(2))
    most = known.most_tokens or 4096
    n = draw.choice([n for n in (16, 32, 64, 128, 512, 1024, 4096) if n <= most])
    return Case(kernel, pattern, m, k, n, draw.choice((0.5, 0.6, 0.75, 0.85)), seed, spec(gpu))


Run = Callable[..., Estimate | SimResult]
Runs = list[tuple[Estimate | SimResult, Estimate | SimResult]]
"""Both runs of a law, by each order of warps."""
Law = Callable[[Case, Run], float]
"""How much longer the run is that cannot be longer, as a share. BadInput where one cannot be run."""


LONG_ROW = 24
"""Elements that each warp of cuSPARSE has. If rows are shorter, a warp has several, waits at the end of each,
and sparser is slower: 256 x 256 x 256 needs 11.0 us with 90 % removed, 11.2 with 95, 12.5 with 98 (measured,
H200, 2026-11-22)."""


def _sparser(case: Case) -> Case:
    if case.sparsity is None or KERNELS[case.kernel].natural_pattern in ("2:4", "dense"):
        raise BadInput(f"{case.kernel} has a sparsity of its own")
    sparser = case._replace(sparsity=case.sparsity + 0.1)
    if KERNELS[case.kernel].runs_any_mask and (1.0 - sparser.sparsity) * case.k < LONG_ROW:
        raise BadInput(f"{case.kernel}: rows are short")
    return sparser


DRAM_RATES = ("dram_peak_bytes_per_s", "dram_bytes_per_s", "dram_write_bytes_per_s", "dram_copy_bytes_per_s")
ENDLESS = 100
"""Times as much bandwidth, so that no launch waits for it."""


def _times(*names: str, factor: int = 2) -> Callable[[Case], Case]:
    """The case on a GPU with twice, or `factor` times, the quantities."""

    def multiplied(case: Case) -> Case:
        changes = {}
        for name in names:
            value = getattr(case.gpu, name)
            is_tuple = isinstance(value, tuple)
            changes[name] = tuple(factor * one for one in value) if is_tuple else factor * value
        return case._replace(gpu=replace(case.gpu, **changes))

    return multiplied


def _fewer_tokens(case: Case) -> Case:
    """The layer without half of the blocks of tokens that its plan has.

    The last block keeps its tokens. With half of the tokens it may have fewer: narrower rows of B cost L2
    more per byte, and partly filled blocks test the bounds of each store (measured, 0054).
    """
    block_n = case.plan().shape.block_n
    ranges = -(-case.n // block_n)
    if ranges < 2:
        raise BadInput("one block of tokens")
    return case._replace(n=case.n - ranges // 2 * block_n)


HARDWARE: dict[str, Callable[[Case], Case]] = {
    # L2 in proportion: blocks of more SMs use more data at a time, so that L2 would lose some that it kept.
    # On a T4 (tile-wise, 995095) both engines then read 41 instead of 34 MB from DRAM
    "more SMs": _times("sm_count", "l2_bytes", "l2_usable_bytes"),
    "more bandwidth": _times(*DRAM_RATES),
    "faster L2": _times("l2_bytes_per_s", "l2_store_bytes_per_s"),
    "larger L2": _times("l2_bytes", "l2_usable_bytes"),
    "higher clock": _times("max_clock_hz", "clock_burst_hz", "clock_sustained_hz"),
}
"""Each makes a GPU on which no plan is slower."""
LESS_WORK: dict[str, Callable[[Case], Case]] = {"sparser": _sparser, "fewer tokens": _fewer_tokens}
"""Each makes a layer that is no slower with the same config."""
ANEW: dict[str, Callable[[Case], Case]] = {
    "sparser": _sparser,
    "fewer tokens": lambda case: case._replace(n=case.n // 2),
    **HARDWARE,
}
"""Each makes a case that is no slower with a plan chosen for it."""


def _busiest(result: Estimate | SimResult) -> float:
    """Items of the SM that has most; in the closed form the work of that SM, in items of mean work."""
    return max(float(result.sm_items.max() if isinstance(result, SimResult) else result.waves), 1.0)


def _over(before: Estimate | SimResult, after: Estimate | SimResult, same_items: bool) -> float:
    """How much longer the second run is, as a share; per item of the busiest SM if that has more items.

    Items of unequal plans are not compared.
    """
    items = max(_busiest(after) / _busiest(before), 1.0) if same_items else 1.0
    return after.seconds / items / before.seconds - 1.0


def _one_by_one(code: Code) -> Code:
    """Return the code with one instruction per warp instruction, where issue slots are counted by hand."""
    found: list[Instruction] = []
    for ins in code:
        is_whole = ins.op not in (Op.ISSUE, Op.FMA) or any(charge.field == "issue" for charge in ins.charges)
        slots = 1 if is_whole else max(ins.issue, 1)
        found += [ins._replace(issue=1, amount=0, charges=())] * (slots - 1)
        found.append(ins if slots == 1 else ins._replace(issue=1))
    return tuple(found)


def _interruptible(plan: KernelPlan) -> KernelPlan:
    """Return a plan in which an instruction of n issue slots is n instructions of one slot.

    The simulator gives the sub-partition to such an instruction for n cycles, whatever the order of warps. On
    a GPU the scheduler chooses a warp in every cycle.
    """
    programs = tuple(
        replace(one, **{name: _one_by_one(getattr(one, name)) for name in SECTIONS}) for one in plan.programs
    )
    return replace(plan, programs=programs)


def _by_orders(before: tuple[KernelPlan, GpuSpec], after: tuple[KernelPlan, GpuSpec], run: Run) -> Runs:
    """Return both runs by each order of warps."""
    return [(run(*before, policy=policy), run(*after, policy=policy)) for policy in POLICIES]


def _over_at_best(runs: Runs, same_items: bool) -> float:
    """Return how much longer the second run is, as a share, if each of both has its best order of warps."""
    best = (min(order, key=lambda one: one.seconds) for order in zip(*runs, strict=True))
    return _over(*best, same_items)


def longer(before: tuple[KernelPlan, GpuSpec], after: tuple[KernelPlan, GpuSpec], run: Run) -> float:
    """How much longer the second run is, as a share.

    If it is longer by the usual order of warps, the best orders of both runs are compared, also those that
    interrupt instructions (`_interruptible`), and the result is the smaller excess. Unless the excess is more
    than the order of warps changes the first run, the result is at most that of the order by which the second
    run is longer by least. The law "schedulers" limits by how much these orders differ; the closed form has
    none.

    Raises BadInput if blocks of the next launch are all resident when one of the two launches ends, but not
    when the other one does: the time between launches is then measured in two ways. Resident blocks wait 448
    to 608 ns for their release (`release_s`); others start when SMs become free.
    """
    contexts = [launch_context(*one) for one in (before, after)]
    if len({context.pdl_release_s > 0.0 for context in contexts}) > 1:
        raise BadInput("launches overlap differently")
    plan, other = before[0], after[0]
    same_items = plan.shape == other.shape and plan.item_count >= other.item_count
    if run is ENGINES["model"]:
        # Items of mean work are the same only in runs of one plan
        same_items = plan.fingerprint() == other.fingerprint()
    over = _over(run(*before), run(*after), same_items)
    if over <= ROUNDING or run is ENGINES["model"]:
        return over
    runs = _by_orders(before, after, run)
    interruptible = [(_interruptible(one), gpu) for one, gpu in (before, after)]
    shares = [over, _over_at_best(runs + _by_orders(*interruptible, run), same_items)]
    seconds = [one.seconds for one, _ in runs]
    if over <= max(seconds) / min(seconds) - 1.0:
        shares += [_over(*pair, same_items) for pair in runs]
    return min(shares)


def _better_hardware(change: Callable[[Case], Case]) -> Law:
    def law(case: Case, run: Run) -> float:
        plan = case.plan()
        return longer((plan, case.gpu), (plan, change(case).gpu), run)

    return law


def _less_work(change: Callable[[Case], Case]) -> Law:
    def law(case: Case, run: Run) -> float:
        plan, less = case.plan(), change(case)
        smaller = less.plan_with(plan.config)
        _check_no_new_empty_items(plan, smaller, case.gpu)
        _check_slices(plan, smaller)
        share = _layout_share(plan, smaller)
        over = (1.0 + longer((plan, case.gpu), (smaller, case.gpu), run)) / share - 1.0
        if over <= ROUNDING or plan.steps_per_item.max() > smaller.steps_per_item.max():
            return over
        # The longest items have the same work. Others, now shorter, no longer load rows of B before them, or
        # begin with rows that nobody else reads, so that the longest ones wait for DRAM instead
        endless = _times(*DRAM_RATES, factor=ENDLESS)(case).gpu
        return (1.0 + longer((plan, endless), (smaller, endless), run)) / share - 1.0

    return law


def _layout_share(plan: KernelPlan, smaller: KernelPlan) -> float:
    """Bytes of shared memory of a k-step of the second plan over those of the first one, 1 to 1.02.

    Only for `balanced`, whose layout may need 2 % more of them, because it packs A more densely
    (`choose_rest`).
    """
    if plan.kernel != "balanced":
        return 1.0
    read = [
        sum(ins.amount for program in one.programs for ins in program.step if ins.op is Op.SHARED)
        for one in (plan, smaller)
    ]
    return min(max(read[1] / read[0], 1.0), 1.02) if read[0] else 1.0


def _check_no_new_empty_items(plan: KernelPlan, smaller: KernelPlan, gpu: GpuSpec) -> None:
    """Raise BadInput if co-resident blocks of the smaller launch become empty.

    An empty block ends at once. Blocks of the next launch then start early on its SM, so that more SMs have
    two blocks.
    """
    empty = [np.count_nonzero(one.work.k_stop == one.work.k_start) for one in (plan, smaller)]
    if launch_context(plan, gpu).co_resident and empty[1] > empty[0]:
        raise BadInput("items become empty")


def _check_slices(plan: KernelPlan, smaller: KernelPlan) -> None:
    """Raise BadInput if the smaller launch has more k-slices per tile.

    Both launches have the same config, but the planner divides the tiles of each anew, so that SMs have equal
    work. The owner of more k-slices adds more partial sums. On a B200 (STSpMM, 994646) it needs 7,556 cycles
    after the signals of 12 other slices, and 4,481 after those of 6; both engines take 5.5 % longer.
    """
    if smaller.work.parts.max(initial=1) > plan.work.parts.max(initial=1):
        raise BadInput("tiles have more k-slices")


def _anew(name: str, change: Callable[[Case], Case]) -> Law:
    """Law of plans that are chosen anew.

    If it is broken, the steps that lead to the new plan are compared one by one. On other hardware, the old
    plan is no slower, and no faster than the new one on the same hardware: list scheduling can give an SM
    more of the old plan's work, which `longer` divides by. Sparser weights are compared only if k-slices
    allow it for a plan with the old config.

    On other hardware, a library chooses by rules that are not ours, and not always its fastest kernel.
    """

    def law(case: Case, run: Run) -> float:
        if name in HARDWARE and KERNELS[case.kernel].library:
            raise BadInput(f"{case.kernel}: a library chooses")
        better, plan = change(case), case.plan()
        new = better.plan()
        if name == "sparser" and new.config == plan.config:
            return _less_work(change)(case, run)
        if name in LESS_WORK:
            _check_no_new_empty_items(plan, new, case.gpu)
        over = longer((plan, case.gpu), (new, better.gpu), run)
        if over <= ROUNDING or new.fingerprint() == plan.fingerprint():
            return over
        if name in LESS_WORK:
            if name == "sparser":
                _check_slices(plan, better.plan_with(plan.config))
            return over
        try:
            kept = longer((plan, case.gpu), (plan, better.gpu), run)
        except BadInput:
            return over
        chosen = run(new, better.gpu).seconds / run(plan, better.gpu).seconds - 1.0
        return min(over, max(kept, chosen))

    return law


def _bounds(case: Case, run: Run) -> float:
    """Compulsory bytes over their rate and instructions over theirs, at the clock that is predicted."""
    plan = case.plan()
    result = run(plan, case.gpu)
    return max(bound_cycles(plan, case.gpu, result.clock_hz).values()) / result.cycles - 1.0


def _sustained(case: Case, run: Run) -> float:
    plan = case.plan()
    return run(plan, case.gpu).seconds / run(plan, case.gpu, state="sustained").seconds - 1.0


def _stream(case: Case, run: Run) -> float:
    plan = case.plan()
    return run(plan, case.gpu).seconds / run(plan, case.gpu, launch="stream").seconds - 1.0


def _split(case: Case, run: Run) -> float:
    """One launch against two launches with half of the tokens each, planned anew."""
    half = case._replace(n=case.n // 2)
    return run(case.plan(), case.gpu).seconds / (2 * run(half.plan(), case.gpu).seconds) - 1.0


def _schedulers(case: Case, run: Run) -> float:
    """The slowest of the warp schedulers against the fastest; the closed form has none.

    Instructions can be interrupted or not (`_interruptible`). Runs are compared if the busiest SM has equally
    many items: whoever ends first gets the next item.
    """
    if run is not ENGINES["simulator"]:
        raise BadInput("only the simulator has warp schedulers")
    plan, by_items = case.plan(), {}
    plans = (plan, _interruptible(plan))
    for one, policy in itertools.product(plans, POLICIES):
        result = run(one, case.gpu, policy=policy)
        by_items.setdefault(_busiest(result), []).append(result.seconds)
    return max(max(seconds) / min(seconds) for seconds in by_items.values()) - 1.0


OTHERS: dict[str, Law] = {
    "bounds": _bounds,
    "sustained": _sustained,
    "stream": _stream,
    "one launch": _split,
    "schedulers": _schedulers,
}
NEW_PLAN = ", new plan"
LAWS: dict[str, Law] = {
    **{name: _better_hardware(change) for name, change in HARDWARE.items()},
    **{name: _less_work(change) for name, change in LESS_WORK.items()},
    **{name + NEW_PLAN: _anew(name, change) for name, change in ANEW.items()},
    **OTHERS,
}


def excess(law: str, case: Case, engine: str) -> float | None:
    """How much longer the run is that cannot be longer, as a share; None where one cannot be run."""
    try:
        return LAWS[law](case, ENGINES[engine])
    except BadInput:
        return None


ALLOWED = {
    ("one launch", "dense"): (0.1, "cuBLAS does not choose its fastest kernel"),
    ("sparser", "csr"): (0.12, "rows of unequal length: the balance over SMs, which `explain` shows"),
    ("sparser, new plan", "csr"): (0.12, "as for the same config, which is the only one"),
    ("fewer tokens, new plan", ""): (0.06, "half the tokens get another configuration, which a bound chose"),
    ("more bandwidth", "small-n"): (
        0.03,
        "warps in step wait longer for shared memory than those that DRAM's queue staggers (0049)",
    ),
    ("more bandwidth, new plan", "small-n"): (0.03, "as for the same plan, which it often is"),
    ("more SMs", ""): (0.12, "blocks that are alone on their SMs store C all at once (0030)"),
    ("more SMs, new plan", ""): (
        0.12,
        "stream-k of a few k-steps: shares for a whole, a half or a quarter of the SMs",
    ),
    ("fewer tokens, new plan", "balanced"): (
        0.08,
        "rows of B that fill no block of tokens cost L2 more per byte, stores test bounds (measured, 0054)",
    ),
    ("one launch", "balanced"): (0.08, "where B exceeds a small L2, the roofline ranks small tiles too well"),
    ("schedulers", ""): (0.17, "the order of warps decides whether blocks of an SM load at once or in turn"),
}
"""Law and kernel, `` for all: how much slower a case may be that should be no slower, and why."""
ROUNDING = 0.01
CHOICE = NEAR
"""How much slower a new plan may be in the simulator, although the closed form chose it as no slower: the
difference between both engines beyond which one is in error (`benchmarks.agreement`)."""


def allowed(law: str, kernel: str, engine: str = "model") -> float:
    """What the worst known cause explains, or rounding."""
    found = ALLOWED.get((law, kernel)) or ALLOWED.get((law, ""))
    least_allowed = CHOICE if engine == "simulator" and law.endswith(NEW_PLAN) else ROUNDING
    return max(least_allowed, 0.0 if found is None else found[0])


class Finding(NamedTuple):
    """By how much one draw goes against a law; a line of `--findings`."""

    seed: int
    gpu: str
    kernel: str
    law: str
    excess: float
    engine: str
    case: str

    @property
    def is_broken(self) -> bool:
        """Whether the excess is more than is allowed."""
        return self.excess > allowed(self.law, self.kernel, self.engine)

    @property
    def line(self) -> str:
        """The finding as a JSON object."""
        return json.dumps(self._asdict())


def draw_of(seed: int, engine: str) -> Case:
    """The layer of a seed, kernel by kernel on one GPU after the other, small enough for the engine."""
    kernels = [name for name, kernel in KERNELS.items() if not kernel.parts]
    case = drawn(kernels[seed % len(kernels)], seed, GPUS[(seed + seed // len(kernels)) % len(GPUS)])
    if engine == "simulator" and case.m * case.k * case.n > SIMULATED:
        case = case._replace(n=max(SIMULATED // case.m // case.k // 16 * 16, 16))
    return case


def findings_of(seed: int, engine: str, laws: tuple[str, ...], end: float = float("inf")) -> list[Finding]:
    """The excess of the draw of a seed over each law that it can be run by, as long as there is time."""
    case = draw_of(seed, engine)
    found = []
    for law in laws:
        over = excess(law, case, engine) if time.time() < end else None
        if over is not None:
            found.append(Finding(seed, case.gpu.name, case.kernel, law, round(over, 4), engine, case.text))
    return found


def _all_findings(asked: argparse.Namespace) -> Iterator[list[Finding]]:
    """The findings of all seeds by all engines, in the order in which processes end them."""
    end = time.time() + asked.seconds
    seeds = range(asked.first, asked.first + asked.cases)
    draws = [(seed, engine, tuple(asked.laws), end) for engine in asked.engines for seed in seeds]
    if asked.processes == 1:
        yield from (findings_of(*draw) for draw in draws)
        return
    with ProcessPoolExecutor(asked.processes) as pool:
        for done in as_completed([pool.submit(findings_of, *draw) for draw in draws]):
            yield done.result()


def _main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=["model"])
    parser.add_argument("--laws", nargs="+", choices=list(LAWS), default=list(LAWS))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of all, at most")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--findings", type=Path, help="file to append each broken law to, as a JSON line")
    parser.add_argument("--rows", type=int, default=3, help="cases to show, the worst first")
    asked = parser.parse_args()
    by_law: dict[tuple[str, str], list[Finding]] = {}
    for found in _all_findings(asked):
        for one in found:
            by_law.setdefault((one.engine, one.law), []).append(one)
            if one.is_broken and asked.findings:
                with asked.findings.open("a") as file:
                    file.write(one.line + "\n")
    for (engine, law), found in by_law.items():
        beyond, broken = sum(one.excess > 0.02 for one in found), sum(one.is_broken for one in found)
        print(f"{engine}: {law:15} {len(found)} draws, {beyond} beyond 2 %, {broken} beyond what is allowed")
        for one in sorted(found, key=lambda one: -one.excess)[: asked.rows]:
            print(f"  {one.excess:+.3f} {one.case}")


if __name__ == "__main__":
    _main()
