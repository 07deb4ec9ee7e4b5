"""Cycles of the items of a launch, from samples of the engine: a few equal blocks on one SM.

With t(S) the cycles of a sampled block of S k-steps and R the steps of two rings,

    cycles of an item = t(min(S, R)) + (S - R) * pace        pace = (t(2 R) - t(R)) / R

where a shorter last step is interpolated between one of 16 columns and a whole one. L2 and DRAM deliver a
sample's data at once, after their latency; `chip.py` adds the traffic of all SMs.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.launch.overlap import prologue_is_hidden, store_latency_cycles
from prunecast.models.bounds import sm_level_cycles
from prunecast.models.case import Case
from prunecast.models.prefetch import posted_bytes, unposted_bytes
from prunecast.models.rates import copies_through_registers, runs_ahead, store_rate
from prunecast.models.terms import FloatArray
from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import LOADS, Instruction, Op, WarpProgram
from prunecast.simulator.sample import ALONE, SampledBlock, SampledItem, SampledRun, sample_cycles

ROWS_GRAIN = 8
"""Parts of a block's rows to which the rows of items are rounded, so that samples are found again."""
DRAM_GRAIN = 64
"""Cycles to which DRAM's time for a prefetch is rounded, so that samples are found again."""
WAVES = 3
"""Waves of equal blocks from which the time of a block among others is taken."""


class BlockTimes(NamedTuple):
    """Cycles of kinds of items, each (kinds,) float64."""

    first: FloatArray
    """From the start of a block whose first item it is until L2 has its stores."""
    later: FloatArray
    """From then on, of an item that follows another one in its block."""
    demand: FloatArray
    """Cycles of its SM for an item among others that are resident with it."""
    quiet: FloatArray
    """Cycles at the end of an item in which it reads nothing."""
    after_parts: FloatArray
    """Cycles that an owner of k-slices needs once it has the signals of the others."""


def block_times(case: Case) -> BlockTimes:
    """Return the times of every kind of item."""
    plan, amounts, example = case.plan, case.amounts, case.amounts.kinds.example
    parts, owner = plan.work.parts[example], plan.work.owner[example] == 1
    rows = _rounded_rows(case)
    tokens = np.asarray(np.rint(amounts.tokens), np.int64)
    found = BlockTimes(*np.zeros((5, example.size)))
    blocks = _sampled(case)
    keys = np.stack([rows, tokens, parts, owner], axis=1)
    different, of_kind = np.unique(keys, axis=0, return_inverse=True)
    for place, (item_rows, item_tokens, item_parts, owns) in enumerate(different.tolist()):
        own = of_kind.ravel() == place
        item = SampledItem(0, item_rows, item_tokens, item_parts, bool(owns))
        for column, values in zip(
            found,
            _times_of(case, blocks, item, _Steps(amounts.step_count[own], amounts.last_k16[own])),
            strict=True,
        ):
            column[own] = values
    return found


class _Steps(NamedTuple):
    """K-steps of items, each (items,) float64."""

    steps: FloatArray
    last_groups: FloatArray
    """Groups of 16 columns in the last one."""


class _Blocks(NamedTuple):
    """A block of the launch, to be sampled with its data near, in L2, and far, in DRAM."""

    near: SampledBlock
    """The block if all that it reads is in L2."""
    far: SampledBlock
    """The block if what it is the first to read comes from DRAM."""
    far_share: float
    """Fraction of the k-steps after the first ones whose data come from DRAM, 0 to 1."""
    first_steps: int
    """Number of first k-steps of an item, whose data all come from DRAM."""


def _sampled(case: Case) -> _Blocks:
    """Return the block of a launch as it is sampled.

    Rings hide how late data from DRAM are, once they are filled; `chip.py` counts DRAM's bytes. Copies
    through registers wait in steps of which DRAM has data. Blocks of co-resident launches read their
    weights once, from DRAM, and rows of B that others may have read before.
    """
    context, plan, gpu = case.context, case.plan, case.gpu
    programs = context.programs
    if prologue_is_hidden(context):
        programs = tuple(replace(program, start=(), begin=()) for program in programs)
    far = SampledBlock(
        programs=programs,
        shape=plan.shape,
        stages=plan.resources.stages,
        dtype=plan.dtype,
        tensor=plan.tensor,
        gpu=gpu,
        store_latency=store_latency_cycles(context),
        store_bytes_per_clk=float(max(round(store_rate(context)), 1)),
        read_latency=gpu.dram_latency_cycles,
        b_in_l2=context.b_in_l2,
        dram_busy=_prefetch_cycles(case),
    )
    if context.co_resident:
        return _Blocks(far._replace(b_in_l2=True), far, 1.0 if context.b_in_l2 else _first_reads(case), 1)
    near = far._replace(read_latency=gpu.l2_latency_cycles)
    if context.b_in_l2:
        return _Blocks(near, far, 1.0, _ring(far))
    far_share = 0.0
    if copies_through_registers(programs):
        # Items of a wave run in step: those that do not read a row first wait for it too
        columns = (plan.work.k_stop - plan.work.k_start).astype(np.float64)
        missing = 1.0 - case.traffic.waves.in_l2**plan.shape.block_k
        far_share = float(columns @ missing / max(columns.sum(), 1.0))
    return _Blocks(near, far, far_share, _ring(far))


def _first_reads(case: Case) -> float:
    """Return the share of k-steps of which a warp is the first to read some row of B.

    All blocks of a co-resident launch read at once, each its own kept columns.
    """
    plan, read = case.plan, case.rules.read
    token_ranges = -(-plan.n // plan.shape.block_n)
    reads = float((plan.work.k_stop - plan.work.k_start).sum(dtype=np.int64)) / token_ranges
    first = min(read.rows / max(reads, 1.0), 1.0)
    warps = sum(program.warps for program in case.context.programs if program.fetches)
    return float(1.0 - (1.0 - first) ** (plan.shape.block_k / max(warps, 1)))


def _prefetch_cycles(case: Case) -> int:
    """Return the cycles in which DRAM serves weights of co-resident launches that precede rows of B: those
    that the blocks of the next launch prefetch, and the blocks' own.
    """
    context, gpu = case.context, case.gpu
    if not context.co_resident:
        return 0
    size = posted_bytes(context) + unposted_bytes(context, case.blocks_in_flight)
    return DRAM_GRAIN * round(size * gpu.max_clock_hz / gpu.dram_bytes_per_s / DRAM_GRAIN)


def _rounded_rows(case: Case) -> np.ndarray:
    """(kinds,) rows of items in steps of a part of a block's rows, at least one step."""
    block_m, tiles = case.plan.shape.block_m, case.plan.tiles
    grain = max(block_m // ROWS_GRAIN, 1)
    rows = tiles.rows_per_tile[case.plan.work.tile[case.amounts.kinds.example]]
    return np.asarray(np.minimum(-(-rows // grain) * grain, block_m), np.int64)


def _times_of(case: Case, blocks: _Blocks, item: SampledItem, steps: _Steps) -> BlockTimes:
    """Return the times of items that differ in their k-steps only."""
    context = case.context
    first = later = _cycles(blocks, item, steps, ALONE)
    if case.plan.item_count > case.plan.blocks:
        # Warps that run ahead hide how late the data of the next item come
        found = blocks._replace(far=blocks.near) if runs_ahead(context.programs) else blocks
        one, several = (_cycles(found, item, steps, ALONE._replace(items=count)) for count in (1, WAVES))
        later = (several - one) / (WAVES - 1)
    demand = _demand(case, blocks, item, steps) if context.crowd > 1 else np.zeros_like(first)
    quiet = np.minimum(_tail(blocks.near, item) + _unread_step(case, blocks.near, item), first)
    return BlockTimes(first, later, demand, quiet, np.full_like(first, _after_parts(blocks.near, item)))


def _unread_step(case: Case, block: SampledBlock, item: SampledItem) -> float:
    """Return the cycles of a last step for which nothing is read any more."""
    programs, step = case.context.programs, sm_level_cycles(case.amounts.step, case.rates)
    if runs_ahead(programs):
        return max(float(step["tensor"]), float(step["shared"]))
    reads_in_steps = any(program.fetches for program in programs)
    return _pace(block, item, ALONE) if case.context.co_resident or not reads_in_steps else 0.0


def _demand(case: Case, blocks: _Blocks, item: SampledItem, steps: _Steps) -> FloatArray:
    """(items,) cycles of an SM for an item among as many others as it holds."""
    context, plan, crowd = case.context, case.plan, case.context.crowd
    one_wave = SampledRun(crowd, crowd)
    several = plan.item_count > crowd * case.gpu.sm_count
    if context.co_resident and not several:
        return np.asarray(_cycles(blocks, item, steps, one_wave) / crowd)
    found = blocks if blocks.far_share else blocks._replace(far=blocks.near)
    together = _cycles(found, item, steps, one_wave)
    if plan.item_count <= crowd * case.gpu.sm_count:
        return np.asarray(together / crowd)
    in_turn = plan.schedule is Schedule.STATIC
    waves = SampledRun(crowd, crowd, WAVES) if in_turn else SampledRun(crowd, WAVES * crowd)
    return np.asarray((_cycles(found, item, steps, waves) - together) / (crowd * (WAVES - 1)))


def _cycles(blocks: _Blocks, item: SampledItem, steps: _Steps, run: SampledRun) -> FloatArray:
    """(items,) cycles of a sample whose first steps find their data in DRAM, and the later ones in part."""
    near, far, share, first_steps = blocks
    if near is far:
        return _sampled_cycles(near, item, run, steps)
    groups = -(-near.shape.block_k // 16)
    is_first = steps.steps <= first_steps
    first = _Steps(np.minimum(steps.steps, first_steps), np.where(is_first, steps.last_groups, groups))
    found = _sampled_cycles(far, item, run, first)
    for block, part in ((near, 1.0 - share), (far, share)):
        if part > 0.0 and not is_first.all():
            beyond = _sampled_cycles(block, item, run, steps) - _sampled_cycles(block, item, run, first)
            found = found + part * beyond
    if share > 0.0:
        # Later steps make up for a part of what the first ones wait
        found = np.minimum(found, _sampled_cycles(far, item, run, steps))
    return found


def _sampled_cycles(block: SampledBlock, item: SampledItem, run: SampledRun, steps: _Steps) -> FloatArray:
    """(items,) cycles of a sample of items with so many steps.

    Few steps are sampled; of more than two rings, all steps beyond take as long as those from the second ring
    to the fourth one.
    """
    block_k, ring = block.shape.block_k, _ring(block)
    groups = -(-block_k // 16)

    def cycles(count: int, missing: int) -> int:
        sized = item._replace(columns=max(count * block_k - 16 * missing, 0))
        return sample_cycles(block, sized, run)

    few = np.minimum(steps.steps, 2 * ring)
    missing = (groups - steps.last_groups) / max(groups - 1, 1)
    found = np.zeros_like(few)
    for count in np.unique(few).tolist():
        own = few == count
        whole = cycles(int(count), 0)
        found[own] = whole
        if count and missing[own].any():
            found[own] -= missing[own] * (whole - cycles(int(count), groups - 1))
    if (few < steps.steps).any():
        found += (steps.steps - few) * _pace(block, item, run)
    return found


@lru_cache(maxsize=4096)
def _pace(block: SampledBlock, item: SampledItem, run: SampledRun) -> float:
    """Return the cycles of a k-step of a sample, once its steps are alike."""
    ring, block_k = _ring(block), block.shape.block_k
    short, long = (
        sample_cycles(block, item._replace(columns=count * ring * block_k), run) for count in (2, 4)
    )
    return (long - short) / (2 * ring)


@lru_cache(maxsize=4096)
def _ring(block: SampledBlock) -> int:
    """Return the steps after which a block's steps are alike: those that it reads ahead or at its begin."""
    code = (i for program in block.programs for i in (*program.begin, *program.step))
    return max(block.stages, max((i.ahead for i in code), default=0) + 1, 2)


@lru_cache(maxsize=4096)
def _tail(block: SampledBlock, item: SampledItem) -> float:
    """Return the cycles from the last step of an item, or from its last read where steps read nothing, until
    L2 has its stores. Where blocks of the next launch prefetch meanwhile, reads go on to the last step.
    """
    posted = any(i.posted for program in block.programs for i in program.begin)
    reads_to_the_end = posted or any(program.fetches for program in block.programs)

    def cut(program: WarpProgram) -> WarpProgram:
        if reads_to_the_end:
            return replace(program, end=(), finish=())
        last = max((place for place, i in enumerate(program.begin, 1) if i.op in LOADS), default=0)
        begin = (*program.begin[:last], Instruction(Op.WAIT_LOAD))
        return replace(program, begin=begin, step=(), end=(), finish=())

    return _without(block, item, cut)


@lru_cache(maxsize=4096)
def _after_parts(block: SampledBlock, item: SampledItem) -> float:
    """Return the cycles of an owner from the signals of the other k-slices until L2 has its stores."""
    if item.parts == 1 or not item.owner:
        return 0.0
    return _without(block, item, _until_parts)


def _without(block: SampledBlock, item: SampledItem, cut: Callable[[WarpProgram], WarpProgram]) -> float:
    """Return the cycles that a block needs less if its programs are cut."""
    whole = item._replace(columns=2 * _ring(block) * block.shape.block_k)
    shorter = block._replace(programs=tuple(cut(program) for program in block.programs))
    return float(max(sample_cycles(block, whole) - sample_cycles(shorter, whole), 0))


def _until_parts(program: WarpProgram) -> WarpProgram:
    ops = [instruction.op for instruction in program.end]
    first = ops.index(Op.WAIT_PARTS) if Op.WAIT_PARTS in ops else len(ops)
    return replace(program, end=program.end[:first], finish=())
