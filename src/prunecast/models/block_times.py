"""Cycles of the items of a launch, from short simulations of a few equal blocks on one SM (samples).

t(S) is the simulated time of a block with one item of S k-steps, and R is twice the number of k-steps in the
block's pipeline (`ring_steps`). Longer items are in steady state after R k-steps:

    cycles of an item = t(min(S, R)) + max(S - R, 0) * pace        pace = (t(2 R) - t(R)) / R

If the last k-step has fewer columns, its time is interpolated between a k-step of 16 columns and a full one.
In samples, L2 and DRAM have latency but unlimited bandwidth; `chip.py` adds the traffic of all SMs.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.models.case import Case
from prunecast.models.fitted import FITTED
from prunecast.models.prefetch import burst_overlap, posted_bytes, unposted_bytes
from prunecast.models.rates import OF_AN_SM, sm_level_cycles, store_rate
from prunecast.models.terms import OF_STORES, FloatArray, Quantity
from prunecast.models.traffic import columns_of_tiles, runs_per_step
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.program import COPIES, LOADS, Instruction, Op, WarpProgram
from prunecast.simulator.sample import ALONE, BlockSamples, SampledBlock, SampledItem, SampledRun

ROWS_GRAIN = 8
"""Rows of items are rounded up to multiples of `block_m` / `ROWS_GRAIN`, so that items share samples. Kind:
choice, rounding."""
DRAM_GRAIN = 64
"""Cycles to which the result of `dram_busy_cycles` is rounded, so that launches share samples. Kind: choice,
rounding."""
WAIT_GRAIN = 64
"""Samples wait for multiples of this number of cycles in each k-step; times for other waits are interpolated
(`_cycles`), so that launches share samples. Kind: choice, for speed."""
OVERLAP_GRAIN = 8
"""The result of `stores_together` is a multiple of 1 / `OVERLAP_GRAIN`, so that kinds of items share samples.
Kind: choice, rounding."""
IN_STEP_SHARE = FITTED["in_step_share"]
"""Factor on the DRAM time in `_step_wait_cycles`."""
SHARED_STEPS = FITTED["shared_steps"]
"""Consecutive k-steps of which two blocks must both read all rows of B to run in step."""
WAVES = 3
"""Number of equal items that each block slot runs, one after another, in samples that measure the time of an
item after the first one, if no warp runs ahead. Kind: choice, one item between the first and the last."""


class BlockTimes(NamedTuple):
    """SM cycles of each kind of item, each (kinds,) float64.

    `first` and `later` are for a block that is alone on its SM. For `first_demand` and `demand`, the SM holds
    `LaunchContext.crowd` blocks (the most that any SM of the launch holds), and the time until all of them
    end is divided by their number. Both are 0 if `crowd` is 1.
    """

    first: FloatArray
    """Cycles from the start of a block until L2 has the stores of its first item."""
    refill: FloatArray
    """As `first`, of a block that starts after the first wave. By then DRAM has served the weights that all
    blocks prefetch when a co-resident launch begins."""
    later: FloatArray
    """Additional cycles for each item that follows another one in its block."""
    first_demand: FloatArray
    """SM cycles per block for its first item, if all blocks of the SM start at the same time."""
    demand: FloatArray
    """SM cycles per block for an item that follows another one in its block slot."""
    quiet: FloatArray
    """Cycles at the end of an item during which its block reads nothing."""
    after_parts: FloatArray
    """For the owner of a split tile (the k-slice that adds the partial sums and writes C): cycles from the
    last signal of the other k-slices to the owner's end. 0 for all other items."""


def block_times(case: Case) -> BlockTimes:
    """Return the cycles of every kind of item of a launch."""
    plan, amounts, example = case.plan, case.amounts, case.amounts.kinds.example
    owner = plan.work.owner[example] == 1
    # Only owners read the partial sums of the other slices, so slices without them share samples
    parts = np.where(owner, plan.work.parts[example], 2)
    rows = _rounded_rows(case)
    tokens = np.asarray(np.rint(amounts.tokens), np.int64)
    together = stores_together(case).tolist()
    found = BlockTimes(*np.zeros((7, example.size)))
    sampled = _sampled(case)
    rate_of = {share: float(max(round(store_rate(case.context, share)), 1)) for share in set(together)}
    kinds_of: dict[tuple[SampledItem, float], list[int]] = {}
    columns = (rows.tolist(), tokens.tolist(), parts.tolist(), owner.tolist())
    for kind, sizes in enumerate(zip(*columns, strict=True)):
        kinds_of.setdefault((SampledItem(0, *sizes), rate_of[together[kind]]), []).append(kind)
    for (item, rate), own in kinds_of.items():
        near, far = (
            _block(one.sampled._replace(store_bytes_per_clk=rate)) for one in (sampled.near, sampled.far)
        )
        blocks = sampled._replace(near=near, far=far)
        steps = near.steps(amounts.step_count[own], amounts.last_k16[own])
        for column, values in zip(found, _times_of(case, blocks, item, steps), strict=True):
            column[own] = values
    if case.context.crowd > 1:
        # Samples of few items in turn can end sooner than the busiest pipe allows for many
        pipes = np.max(list(sm_level_cycles(amounts.whole[:, OF_AN_SM], case.rates).values()), axis=0)
        for demand in (found.first_demand, found.demand):
            np.maximum(demand, pipes, out=demand)
    return found


def ring_steps(programs: tuple[WarpProgram, ...], stages: int) -> int:
    """Return the number of k-steps in a block's pipeline: the largest of 2, stages, and load distance + 1.

    The load distance is the number of k-steps by which the earliest load of a k-step precedes its use.
    """
    ahead = (i.ahead for program in programs for i in (*program.begin, *program.step))
    return max(stages, max(ahead, default=0) + 1, 2)


def first_stages_share(case: Case, items: npt.NDArray[np.bool_] | slice = slice(None)) -> float:
    """Return the fraction of the kept columns of items that their blocks request when an item begins.

    These are the columns of as many k-steps as a block's pipeline has stages for. Asynchronous copies wait
    for a free stage. Column indices need none, so that blocks may load them for k-steps whose data they have
    not requested yet. Other blocks request the k-steps of `ring_steps`.

    Parameters
    ----------
    items : mask of the items that count, (items,); all by default
    """
    plan = case.plan
    columns = (plan.work.k_stop - plan.work.k_start)[items].astype(np.float64)
    steps = ring_steps(case.context.programs, plan.resources.stages)
    if any(i.op in COPIES for program in case.context.programs for i in program.step):
        steps = plan.resources.stages
    requested = np.minimum(columns, steps * plan.shape.block_k)
    return float(requested.sum() / max(columns.sum(), 1.0))


class _Steps:
    """K-steps of items, grouped by the number of k-steps that their samples simulate.

    Attributes
    ----------
    steps : (items,) float64, number of k-steps
    last_groups : (items,) float64, groups of 16 columns in the last k-step
    groups : groups of 16 columns in a full k-step
    sampled : for each simulated number of k-steps, at most `most`: the number, a mask of its items, and the
        fraction of the last k-step that each of these items lacks; None if they lack nothing
    beyond : (items,) float64, number of k-steps beyond `most`; None if no item has more
    """

    def __init__(self, steps: FloatArray, last_groups: FloatArray, groups: int, most: int) -> None:
        self.steps, self.last_groups, self.groups, self._most = steps, last_groups, groups, most
        few = np.minimum(steps, most)
        lacking = (groups - last_groups) / max(groups - 1, 1)
        self.sampled: list[tuple[int, npt.NDArray[np.bool_], FloatArray | None]] = []
        for count in np.unique(few).tolist():
            own = few == count
            lacks = lacking[own] if count and lacking[own].any() else None
            self.sampled.append((int(count), own, lacks))
        self.beyond = steps - few if (few < steps).any() else None
        self._first: dict[int, _Steps] = {}

    def first(self, count: int) -> "_Steps":
        """Return the items cut off after `count` k-steps; the same object if no item has more."""
        if count not in self._first:
            is_last = self.steps <= count
            groups = np.where(is_last, self.last_groups, self.groups)
            few = _Steps(np.minimum(self.steps, count), groups, self.groups, self._most)
            self._first[count] = self if is_last.all() else few
        return self._first[count]


class _Blocks(NamedTuple):
    """Two versions of a block of the launch: `near` with its data in L2, `far` with its data in DRAM."""

    near: "_Block"
    """Block whose reads all hit L2; only its reads of B do for co-resident launches, and for copies through
    registers as far as weights are new (`_new_weights_share`)."""
    far: "_Block"
    """Block whose reads all come from DRAM; its reads of B hit L2 if `LaunchContext.weights_evict_first`."""
    far_share: float
    """Fraction of the k-steps after the first ones whose data come from DRAM, 0 to 1."""
    first_steps: int
    """Number of k-steps at the begin of an item for which all data come from DRAM."""
    led_share: float
    """Fraction of k-steps in which blocks on the SMs with most blocks find their data in L2."""
    step_wait: float | None = None
    """Cycles for which `far` waits in each k-step in addition to its latency (`_step_wait_cycles`); None for
    blocks whose samples do not depend on it."""


def _sampled(case: Case) -> _Blocks:
    """Return both versions of the block to sample, and the k-steps for which `far` applies.

    Once the pipeline stages are filled, they hide the latency of L2, and that of DRAM if there are enough of
    them. Items of the first wave read from DRAM in all k-steps, later ones from L2 after the first steps
    (`chip.py` accounts for DRAM bandwidth). Copies through registers run only one k-step ahead, so these
    blocks wait in every k-step with data from DRAM (`_step_wait_cycles`). Blocks of co-resident launches read
    their weights from DRAM, each byte once; their rows of B may already be in L2 because another block has
    read them. The same is true of copies through registers in later waves.
    """
    context, plan, gpu = case.context, case.plan, case.gpu
    programs = context.programs
    if context.prologue_is_hidden:
        programs = tuple(replace(program, start=(), begin=()) for program in programs)
    far = SampledBlock(
        programs=programs,
        shape=plan.shape,
        stages=plan.resources.stages,
        dtype=plan.dtype,
        tensor=plan.tensor,
        gpu=gpu,
        store_latency=context.store_latency_cycles,
        store_bytes_per_clk=1.0,  # `block_times` replaces it for each kind of item
        read_latency=gpu.dram_latency_cycles,
        b_in_l2=context.weights_evict_first,
        dram_busy=dram_busy_cycles(case),
        block_interval=round(context.block_interval_s * gpu.max_clock_hz * gpu.sm_count),
    )
    if context.co_resident:
        share = 1.0 if context.weights_evict_first else _first_reads(case)
        return _Blocks(_block(far._replace(b_in_l2=True)), _block(far), share, 1, 0.0)
    near, far_block = _block(far._replace(read_latency=gpu.l2_latency_cycles)), _block(far)
    if context.weights_evict_first:
        return _Blocks(near, far_block, 1.0, far_block.ring, 0.0)
    if case.context.copies_through_registers:
        # Rows of B may be in L2, but new weights and column indices come from DRAM, and each k-step waits
        beyond = round(_new_weights_share(case) * (gpu.dram_latency_cycles - gpu.l2_latency_cycles))
        near = _block(far._replace(read_latency=gpu.l2_latency_cycles + beyond, b_in_l2=True))
        columns = (plan.work.k_stop - plan.work.k_start).astype(np.float64)
        share = float(columns @ case.traffic.waves.waits / max(columns.sum(), 1.0))
        return _Blocks(near, far_block, share, 0, _led_share(case), _step_wait_cycles(case))
    share = min(case.blocks_in_flight / max(plan.item_count, 1), 1.0)
    return _Blocks(near, far_block, share, far_block.ring, 0.0)


def _new_weights_share(case: Case) -> float:
    """Return the fraction of items after the first wave whose weights no earlier wave has read, 0 to 1.

    Items of a tile and k-slice that run at the same time wait for the same read of their weights.
    """
    work = case.plan.work
    new = _new_data(case, np.unique(np.stack((work.tile, work.k_start)), axis=1, return_inverse=True)[1])
    return float(new.mean()) if new.size else 0.0


def _new_data(case: Case, data: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return True for each item after the first wave that reads data which no earlier wave has read.

    Parameters
    ----------
    data : (items,) number of the data that each item reads
    """
    waves = case.traffic.waves.of_item
    later = waves > 0
    if not later.any():
        return np.zeros(0, np.bool_)
    first = np.full(data.max() + 1, waves.max())
    np.minimum.at(first, data, waves)
    return np.asarray(first[data][later] == waves[later])


def rows_after_weights(case: Case) -> float:
    """Return the fraction of blocks after the first wave whose rows of B follow the weights of all blocks.

    In a grouped launch, each wave multiplies the tokens of other experts. Their rows are not in L2, and DRAM
    delivers them after the weights that all blocks have requested before. All blocks of the wave then
    multiply and end together, while DRAM idles, and so do the blocks of the next wave. Blocks with more
    k-steps than they request at their start do not count: they request weights while they multiply, and drift
    apart.
    """
    plan = case.plan
    if not case.traits.weights_first or plan.blocks <= case.blocks_in_flight:
        return 0.0
    ahead = (i.ahead for program in case.context.programs for i in program.begin if i.op is Op.LOAD_A)
    at_once = plan.steps_per_item[case.traffic.waves.of_item > 0] <= 1 + max(ahead)
    new = _new_data(case, np.unique(plan.work.token_start, return_inverse=True)[1])
    return float(np.mean(new & at_once))


def _waves_in_step(case: Case, blocks: "_Blocks", item: SampledItem) -> tuple[float, "_Blocks"]:
    """Return the fraction to which later waves wait for the weights of all blocks, and blocks that wait.

    Blocks with unequal k-steps drift apart from wave to wave, so that fewer of them wait together
    (`burst_overlap`). In 42 random grouped launches of small-n on Hopper, closed form and simulator differ by
    3.3 % in the mean, by 4.0 % without drift, and by 9.4 % without this wait.
    """
    share = rows_after_weights(case)
    if not share:
        return 0.0, blocks
    plan, crowd = case.plan, case.context.crowd
    busy = _later_busy_cycles(case)
    steps = plan.steps_per_item[case.traffic.waves.of_item > 0]
    deviation = float(steps.std()) * blocks.near.pace(item, SampledRun(crowd, crowd))
    waves = max(plan.blocks / case.blocks_in_flight - 1.0, 1.0)
    near, far = (_block(one.sampled._replace(dram_busy=busy)) for one in (blocks.near, blocks.far))
    return share * burst_overlap(busy, deviation, waves), blocks._replace(near=near, far=far)


def _later_busy_cycles(case: Case) -> int:
    """Return the cycles from the start of a wave until DRAM has read the weights that its blocks request."""
    context, gpu = case.context, case.gpu
    requested = unposted_bytes(context, case.plan.item_count) / max(
        float(case.amounts.total[Quantity.A]), 1.0
    )
    of_wave = min(requested, 1.0) * case.traffic.a_bytes * case.blocks_in_flight / case.plan.item_count
    set_up = max((i.issue for program in context.programs for i in program.start), default=0)
    cycles = gpu.block_start_cycles + set_up + of_wave * gpu.max_clock_hz / gpu.dram_bytes_per_s
    return DRAM_GRAIN * round(cycles / DRAM_GRAIN)


def stores_together(case: Case) -> FloatArray:
    """Return the fraction of SMs that store at the same time as an item of each kind, (kinds,).

    Items of the first wave count, or all items of lists. Those that end after equally many k-steps of their
    block store together. Others store later by the k-steps that they have more, each of which lasts at least
    as long as the busiest pipe of the SM needs for its blocks. A last k-step counts by its groups of 16
    columns: of tiles that keep 31 and 33 columns, one has a k-step of 32 columns more than the other, but
    only one group more. Stores of two blocks overlap as far as this is shorter than the time in which L2
    stores the C of the wave. Owners of split tiles wait for the partial sums of the other k-slices, so that
    they store C after these. The result is the mean overlap with all blocks, rounded to `OVERLAP_GRAIN`: a
    few long blocks store alone, however many short ones store together. If some SMs run one block less than
    others, the result is that of the others, which end last: SMs with fewer blocks store earlier by the work
    of one block. It is 1 for blocks with producer warps, which stay in step (measured on the H200).

    Lists of several items on SMs with several blocks have items that end at times that depend on each other.
    If they copy through registers, the result is the mean number of lists of an SM over that of the fullest
    SM: SMs with fewer lists store less. For other lists it is 1. With the mean, the engines would differ by
    3.3 instead of 2.8 % (15 launches, B200 and RTX 4090); by 8.6 instead of 18.0 % where it is used (20
    launches, GTX 1080 Ti; 2026-12-01).
    """
    plan, gpu, first = case.plan, case.gpu, case.traffic.waves.of_item == 0
    example, crowd = case.amounts.kinds.example, case.context.crowd
    has_lists = plan.item_count > plan.blocks
    if case.traits.runs_ahead or not first.any() or (has_lists and crowd > 1):
        by_lists = has_lists and case.context.copies_through_registers
        fullness = min(plan.blocks / (crowd * gpu.sm_count), 1.0) if by_lists else 1.0
        return np.full(example.size, round(fullness * OVERLAP_GRAIN) / OVERLAP_GRAIN)
    ends, counted, rounds = np.ceil(plan.multiplied_columns / 16.0) * 16.0 / plan.shape.block_k, first, 1.0
    if has_lists:
        # An item of a list follows the k-steps of earlier items of its block
        ends, counted, rounds = _list_steps(plan, ends), np.ones_like(first), plan.item_count / plan.blocks
    stored = float(case.amounts.total[OF_STORES].sum()) * float(counted.mean()) / rounds
    window = max(stored / gpu.l2_store_bytes_per_s * gpu.max_clock_hz, 1.0)
    step = crowd * max(float(c) for c in sm_level_cycles(case.amounts.step, case.rates).values())
    share, own, reach = np.empty(example.size), ends[example], window / step if step else np.inf
    # Owners that wait for partial sums store after all k-steps
    waits = (plan.work.owner == 1) & (plan.work.parts > 1) & case.traits.waits_for_parts
    for is_owner in (False, True):
        kinds = waits[example] == is_owner
        share[kinds] = _overlap(own[kinds], ends[counted & (waits == is_owner)], reach)
    # SMs with one block less store earlier by its k-steps, except owners, which wait for k-slices on all SMs
    full_sms = min(plan.blocks / gpu.sm_count - (crowd - 1), 1.0) if crowd > 1 else 1.0
    apart = np.where(waits[example], 0.0, np.minimum(own * step / crowd / window, 1.0))
    share = np.minimum(share * rounds / counted.sum(), 1.0) * (1.0 - (1.0 - full_sms) * apart)
    return np.asarray(np.rint(share * OVERLAP_GRAIN) / OVERLAP_GRAIN)


def _overlap(own: FloatArray, ends: FloatArray, reach: float) -> FloatArray:
    """Return for each value x of `own` the sum of max(1 - |x - y| / `reach`, 0) over all y of `ends`.

    By sums over sorted `ends`: lists of CSR have 10,000 different ones.
    """
    ends = np.sort(ends)
    total = np.concatenate(([0.0], np.cumsum(ends)))
    low, at, high = (np.searchsorted(ends, bound) for bound in (own - reach, own, own + reach))
    distance = own * (2 * at - low - high) + total[low] + total[high] - 2 * total[at]
    return np.asarray(high - low - distance / reach)


def _list_steps(plan: KernelPlan, own_steps: FloatArray) -> FloatArray:
    """Return the sum of `own_steps` (items,) over the items of a block's list up to each item, (items,)."""
    done = np.concatenate(([0.0], np.cumsum(own_steps)))
    starts = plan.work.block_start
    return np.asarray(done[1:] - np.repeat(done[starts[:-1]], np.diff(starts)))


def _led_share(case: Case) -> float:
    """Return the fraction of k-steps of the SMs with most blocks whose data other SMs have read before.

    SMs with one block more than others are slower. If a faster SM reads the same weights and the same rows of
    B, their blocks find these in L2, so that the faster SMs wait for DRAM in each k-step and the slower ones
    do not. Of n items that read the same data, each is on a slow SM with probability p, so that others have
    read them with probability 1 - p^(n - 1). The result is this for weights, times this for rows of B.
    """
    plan, crowd, sms = case.plan, case.context.crowd, case.gpu.sm_count
    first = (case.traffic.waves.of_item == 0) & (plan.steps_per_item > 0)
    if crowd == 1 or plan.blocks >= crowd * sms or not first.any():
        return 0.0
    slow = crowd * (plan.blocks - (crowd - 1) * sms) / plan.blocks
    same_weights = items_in_step(case, first)
    same_rows = max(in_step_by_rows(case, first) / same_weights, 1.0)
    return float((1.0 - slow ** (same_weights - 1.0)) * (1.0 - slow ** (same_rows - 1.0)))


def _step_wait_cycles(case: Case) -> float:
    """Return the cycles for which blocks of the first wave wait for DRAM in each k-step.

    Blocks with the same tile and k-slice, but different tokens, run in step, because they read equally many
    rows in each k-step and DRAM serves their requests in turn. Each of them waits for the reads of all.
    Blocks of tiles with the same columns read the same rows of B: the faster one waits until DRAM has
    delivered them, and the slower one finds them in L2. They run in step too, as far as B is what DRAM reads,
    and if no SM has a second block that works meanwhile. The same is true in part of tiles that keep most
    rows (`in_step_by_rows`). Other blocks drift apart and do not wait for each other. The result is
    `IN_STEP_SHARE` times the DRAM time of one k-step of one block times the mean number of blocks in step.
    """
    plan, traffic = case.plan, case.traffic
    first = (traffic.waves.of_item == 0) & (plan.steps_per_item > 0)
    steps = float(plan.steps_per_item[first].sum(dtype=np.int64))
    if not steps:
        return 0.0
    in_step = items_in_step(case, first)
    if case.context.crowd == 1:
        of_b = traffic.b_bytes / (traffic.a_bytes + traffic.b_bytes)
        in_step += of_b * (in_step_by_rows(case, first) - in_step)
    return float(IN_STEP_SHARE * case.first_reads_s * case.gpu.max_clock_hz * in_step / steps)


def items_in_step(case: Case, concurrent: npt.NDArray[np.bool_]) -> float:
    """Return the mean number of items with the tile and k-slice of an item.

    Parameters
    ----------
    concurrent : (items,) items that run at the same time
    """
    work = case.plan.work
    slices = np.stack((work.tile[concurrent], work.k_start[concurrent]))
    sizes = np.unique(slices, axis=1, return_counts=True)[1].astype(np.float64)
    return float(sizes @ sizes / sizes.sum())


def in_step_by_rows(case: Case, concurrent: npt.NDArray[np.bool_]) -> float:
    """Return the mean number of items that run in step because their tiles keep the same columns.

    Items of tiles with different columns count by the geometric mean of two probabilities: those that one
    and that the other tile keeps all rows of `SHARED_STEPS` k-steps.

    Parameters
    ----------
    concurrent : (items,) items that run at the same time
    """
    plan, tiles = case.plan, case.plan.tiles
    work = plan.work
    tile, begin, end = (column[concurrent] for column in (work.tile, work.k_start, work.k_stop))
    columns = np.stack((columns_of_tiles(plan)[tile], begin, end))
    group, sizes = np.unique(columns, axis=1, return_inverse=True, return_counts=True)[1:]
    same = sizes[group].astype(np.float64)
    share = np.minimum(case.rules.read.share(tiles.kept_per_tile), 1.0)[tile]
    # For tiles that keep the fractions s_1 and s_2 of the rows: (s_1 s_2)^(n / 2), between s_1^n and s_2^n
    keeps = share ** (SHARED_STEPS / 2.0 * runs_per_step(plan))
    of_slice = np.unique(begin, return_inverse=True)[1]
    others = keeps * (np.bincount(of_slice, keeps)[of_slice] - keeps * same)
    return float(np.mean(same + np.maximum(others, 0.0)))


def _first_reads(case: Case) -> float:
    """Return the fraction of k-steps in which a warp reads a row of B that no block has read before.

    All blocks of a co-resident launch read concurrently, each the rows of its own kept columns.
    """
    plan, read = case.plan, case.rules.read
    token_ranges = -(-plan.n // plan.shape.block_n)
    reads = float((plan.work.k_stop - plan.work.k_start).sum(dtype=np.int64)) / token_ranges
    first = min(read.rows / max(reads, 1.0), 1.0)
    warps = sum(program.warps for program in case.context.programs if program.fetches)
    return float(1.0 - (1.0 - first) ** (plan.shape.block_k / max(warps, 1)))


def dram_busy_cycles(case: Case) -> int:
    """Return the cycle until which DRAM reads weights before the first rows of B of the first wave.

    Blocks of co-resident launches begin when DRAM serves the weights that the next launch prefetches; the
    first weights of this launch follow. Blocks of other launches request their weights after start and
    set-up. The result is 0 if no weights are requested first.
    """
    context, gpu, begun = case.context, case.gpu, 0.0
    if not (context.co_resident or case.weights_delay_rows):
        return 0
    size = posted_bytes(context) + unposted_bytes(context, case.blocks_in_flight)
    if case.weights_delay_rows:
        set_up = max((i.issue for program in context.programs for i in program.start), default=0)
        begun = case.before_data - gpu.dram_latency_cycles + set_up
        # Items of a tile share the read of its weights
        size = min(size / max(float(case.amounts.total[Quantity.A]), 1.0), 1.0) * case.traffic.a_bytes
    return DRAM_GRAIN * round((begun + size * gpu.max_clock_hz / gpu.dram_bytes_per_s) / DRAM_GRAIN)


def _rounded_rows(case: Case) -> np.ndarray:
    """Return (kinds,) int64: rows of an item, rounded up to a multiple of `block_m / ROWS_GRAIN`."""
    block_m, tiles = case.plan.shape.block_m, case.plan.tiles
    grain = max(block_m // ROWS_GRAIN, 1)
    rows = tiles.rows_per_tile[case.plan.work.tile[case.amounts.kinds.example]]
    return np.asarray(np.minimum(-(-rows // grain) * grain, block_m), np.int64)


def _times_of(case: Case, blocks: _Blocks, item: SampledItem, steps: _Steps) -> BlockTimes:
    """Return the times of items that differ only in their number of columns; each field is (items,)."""
    context = case.context
    first = refill = later = _cycles(blocks, item, steps, ALONE)
    refills = blocks
    if case.plan.blocks > case.blocks_in_flight and blocks.near.sampled.dram_busy:
        # DRAM serves no other requests when these blocks start
        near, far = (_block(one.sampled._replace(dram_busy=0)) for one in (blocks.near, blocks.far))
        refills = blocks._replace(near=near, far=far)
        refill = _cycles(refills, item, steps, ALONE)
    in_step, waiting = _waves_in_step(case, blocks, item)
    if in_step:
        refill = refill + in_step * (_cycles(waiting, item, steps, ALONE) - refill)
    if case.plan.item_count > case.plan.blocks:
        later = _later_items(case, blocks, item, steps)
    first_demand = demand = np.zeros_like(first)
    if context.crowd > 1:
        first_demand = _cycles(blocks, item, steps, SampledRun(context.crowd, context.crowd)) / context.crowd
        if blocks.led_share > 0.0:
            # They do not overtake the SMs with one block less, which read the data first
            fewer = _cycles(blocks, item, steps, SampledRun(context.crowd - 1, context.crowd - 1))
            in_l2 = blocks.near.cycles(item, SampledRun(context.crowd, context.crowd), steps)
            led = np.maximum(in_l2, fewer) / context.crowd
            first_demand += blocks.led_share * np.minimum(led - first_demand, 0.0)
        demand = _demand_later(case, refills, item, steps, first_demand)
        if in_step:
            together = _cycles(waiting, item, steps, SampledRun(context.crowd, context.crowd)) / context.crowd
            demand = demand + in_step * (together - demand)
    near = blocks.near
    # Warps that wait have no data earlier, so that items of few k-steps read until later than `tail` says
    before = case.before_data if case.traits.waits else 0.0
    quiet = np.minimum(near.tail(item) + _unread_step(case, near, item), np.maximum(first - before, 0.0))
    after_parts = np.full_like(first, near.after_parts(item))
    return BlockTimes(first, refill, later, first_demand, demand, quiet, after_parts)


def _later_items(case: Case, blocks: _Blocks, item: SampledItem, steps: _Steps) -> FloatArray:
    """Return `BlockTimes.later`: cycles that an item adds to a block that runs another one before, (items,).

    Producer warps that run ahead hide the latency of rows and weights of the next item, since they request
    them while other warps multiply. But they wait for its column indices before they request rows: those of
    tiles that no earlier wave has read come from DRAM. Rows of B are in L2 by then.
    """
    if not case.traits.runs_ahead:
        one, several = (_cycles(blocks, item, steps, ALONE._replace(items=count)) for count in (1, WAVES))
        return np.asarray((several - one) / (WAVES - 1))
    following = case.plan.item_count / case.plan.blocks - 1.0
    later, share = _mean_of_list(blocks.near, item, steps, following), _new_weights_share(case)
    if share > 0.0:
        new = _block(blocks.far.sampled._replace(b_in_l2=True))
        later += share * (_mean_of_list(new, item, steps, following) - later)
    return later


def _mean_of_list(block: "_Block", item: SampledItem, steps: _Steps, following: float) -> FloatArray:
    """Return the mean cycles of the `following` items of a list after its first one, (items,).

    When the first item ends, producer warps have requested as many k-steps as the pipeline has stages for:
    those of the next p = ring / k-steps items. These items differ from later ones, which follow each other at
    the pace of items p + 1 to 2 p. Example: items of two k-steps, eight stages (p = 4), and indices from DRAM
    on an H200. The next three items add about 2,315 cycles each, the fourth 2,409, and later ones 2,505.
    """
    requested = np.ceil(block.ring / np.maximum(steps.steps, 1.0))
    mean = np.empty_like(steps.steps)
    for ahead in np.unique(requested).tolist():
        own = requested == ahead
        part = block.steps(steps.steps[own], steps.last_groups[own])
        runs = (ALONE._replace(items=1 + round(count * ahead)) for count in range(3))
        one, some, many = (block.cycles(item, run, part) for run in runs)
        beyond = max(following - ahead, 0.0)
        mean[own] = (some - one + beyond * (many - some) / ahead) / (ahead + beyond)
    return mean


def _unread_step(case: Case, block: "_Block", item: SampledItem) -> float:
    """Return the cycles of an item's last k-step after its data have arrived, as far as `tail` lacks them.

    Producer warps that run ahead have read all data by then, and the k-step lasts as long as its tensor or
    shared-memory work. Other warps multiply the last k-step when its data are there. Tensor instructions run
    on after their issue, so that `tail` contains them. Warps that do not wait for data have multiplied before
    they arrive.
    """
    programs, step = case.context.programs, sm_level_cycles(case.amounts.step, case.rates)
    if case.traits.runs_ahead:
        return max(float(step["tensor"]), float(step["shared"]))
    in_tail = not case.traits.waits or any(i.op is Op.MMA for program in programs for i in program.step)
    in_tail &= not case.context.co_resident and any(program.fetches for program in programs)
    return 0.0 if in_tail else block.pace(item, ALONE)


def _demand_later(
    case: Case, blocks: _Blocks, item: SampledItem, steps: _Steps, first: FloatArray
) -> FloatArray:
    """Return `BlockTimes.demand`: SM cycles per block for an item that follows another one, (items,).

    Parameters
    ----------
    first : (items,) `BlockTimes.first_demand`; returned unchanged if each block slot runs only one item
    """
    plan, crowd = case.plan, case.context.crowd
    if plan.item_count <= crowd * case.gpu.sm_count:
        return first
    found = blocks if blocks.far_share else blocks._replace(far=blocks.near)
    in_turn = plan.schedule is Schedule.STATIC
    waves = SampledRun(crowd, crowd, WAVES) if in_turn else SampledRun(crowd, WAVES * crowd)
    together, several = (_cycles(found, item, steps, run) for run in (SampledRun(crowd, crowd), waves))
    return np.asarray((several - together) / (crowd * (WAVES - 1)))


def _cycles(blocks: _Blocks, item: SampledItem, steps: _Steps, run: SampledRun) -> FloatArray:
    """Return the cycles of a sample, (items,), with data partly in L2 and partly in DRAM.

    The first `first_steps` k-steps have their data in DRAM. The time of the later ones is the mean of the
    times with data in L2 and in DRAM, weighted by 1 - `far_share` and `far_share`.

    Blocks of an SM take turns, and at some latencies they hinder each other in each k-step. Example: two
    blocks of 12 k-steps on a V100 need 15,968 cycles together without `step_wait`, 16,889 with 3 cycles, and
    16,118 with 64. Waits in a launch differ from k-step to k-step, so that no such rhythm lasts. Times are
    therefore interpolated between multiples of `WAIT_GRAIN` cycles. For each multiple the result is the time
    with this wait or with the next multiple, whichever is shorter. Then no single multiple at which blocks
    hinder each other makes a shorter wait slower than a longer one.
    """
    near, far, share, first_steps, _, wait = blocks
    if near is far:
        return near.cycles(item, run, steps)
    first, in_l2 = steps.first(first_steps), np.zeros(steps.steps.size)
    if share < 1.0 and first is not steps:
        in_l2 = (1.0 - share) * (near.cycles(item, run, steps) - near.cycles(item, run, first))
    fars = [far]
    if wait is not None:
        sampled, (multiple, between) = far.sampled, divmod(wait, WAIT_GRAIN)
        latencies = [sampled.read_latency + WAIT_GRAIN * (int(multiple) + more) for more in range(3)]
        fars = [_block(sampled._replace(read_latency=latency)) for latency in latencies]
    times = []
    for one in fars:
        found = one.cycles(item, run, first)
        if share:
            in_dram = one.cycles(item, run, steps)
            # Later steps recover a part of the wait of the first ones
            times.append(np.minimum(found + in_l2 + share * (in_dram - found), in_dram))
        else:
            times.append(found + in_l2)
    if wait is None:
        return times[0]
    low, high = np.minimum(times[:2], times[1:])
    return np.asarray(low + between / WAIT_GRAIN * (high - low))


class _Block:
    """A block, the samples of it, and the times derived from them; each time is computed once and cached."""

    def __init__(self, sampled: SampledBlock) -> None:
        self.sampled, self._samples = sampled, BlockSamples(sampled)
        self._known: dict[Hashable, float] = {}
        posted = any(i.posted for program in sampled.programs for i in program.begin)
        self._reads_to_the_end = posted or any(program.fetches for program in sampled.programs)
        self.block_k = sampled.shape.block_k
        self.ring = ring_steps(sampled.programs, sampled.stages)

    def steps(self, steps: FloatArray, last_groups: FloatArray) -> _Steps:
        """Return the k-steps of items of this block. At most 2 * `ring` are simulated, where `ring` is the
        number of k-steps in the pipeline of the block (`ring_steps`).
        """
        return _Steps(steps, last_groups, -(-self.block_k // 16), 2 * self.ring)

    def cycles(self, item: SampledItem, run: SampledRun, steps: _Steps) -> FloatArray:
        """Return the cycles of a sample whose items have the given k-steps, (items,).

        Each k-step that is not simulated adds the steady-state time `pace`.
        """
        found = np.empty(steps.steps.size)
        for count, own, lacks in steps.sampled:
            whole = self._of_steps(item, run, count)
            found[own] = whole
            if lacks is not None:
                found[own] -= lacks * (whole - self._of_steps(item, run, count, steps.groups - 1))
        if steps.beyond is not None:
            found += steps.beyond * self.pace(item, run)
        return found

    def _of_steps(self, item: SampledItem, run: SampledRun, steps: int, missing_groups: int = 0) -> int:
        columns = max(steps * self.block_k - 16 * missing_groups, 0)
        return self._samples[item._replace(columns=columns), run]

    def pace(self, item: SampledItem, run: SampledRun) -> float:
        """Return the cycles per k-step in steady state: the mean from step 2 * ring to step 4 * ring."""
        key = ("pace", item, run)
        if key not in self._known:
            short, long = (self._of_steps(item, run, count * self.ring) for count in (2, 4))
            self._known[key] = (long - short) / (2 * self.ring)
        return self._known[key]

    def tail(self, item: SampledItem) -> float:
        """Return the cycles at the end of an item from the block's last read until L2 has C.

        They normally start after the last k-step. If the k-steps contain no loads and no weights are
        prefetched for the next launch, they start after the last load in `begin`, the program section before
        the k-steps.
        """
        return self._without(item, self._until_tail)

    def _until_tail(self, program: WarpProgram) -> WarpProgram:
        whole = replace(program, end=(), finish=())
        if self._reads_to_the_end:
            return whole
        last = max((place for place, i in enumerate(program.begin, 1) if i.op in LOADS), default=0)
        return replace(whole, begin=(*program.begin[:last], Instruction(Op.WAIT_LOAD)), step=())

    def after_parts(self, item: SampledItem) -> float:
        """Return the cycles from the last signal of the other k-slices until L2 has the owner's stores.

        The owner is the k-slice that adds the partial sums of a split tile and writes C. The result is 0 for
        unsplit items and for k-slices that are not the owner.
        """
        return 0.0 if item.parts == 1 or not item.owner else self._without(item, _until_parts)

    def _without(self, item: SampledItem, cut: Callable[[WarpProgram], WarpProgram]) -> float:
        """Return the cycles by which an item ends earlier if `cut` removes a part of the warp programs."""
        if (cut, item) not in self._known:
            whole = item._replace(columns=2 * self.ring * self.block_k)
            shorter = tuple(cut(program) for program in self.sampled.programs)
            less = BlockSamples(self.sampled._replace(programs=shorter))[whole, ALONE]
            self._known[cut, item] = float(max(self._samples[whole, ALONE] - less, 0))
        return self._known[cut, item]


_block = lru_cache(maxsize=4096)(_Block)
"""`_Block` of the same arguments once. Kind: choice, memory."""


def _until_parts(program: WarpProgram) -> WarpProgram:
    ops = [instruction.op for instruction in program.end]
    first = ops.index(Op.WAIT_PARTS) if Op.WAIT_PARTS in ops else len(ops)
    return replace(program, end=program.end[:first], finish=())
