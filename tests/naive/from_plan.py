"""Reads a `KernelPlan` for the slow simulator, without the lowering that the engine needs."""

from itertools import pairwise

import numpy as np

from prunecast.hardware.placement import BURST, JITTER, RARE, followed
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.launch.memory import memory_rules
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.tensor_rate import tensor_fma_per_clk
from prunecast.simulator import engine_state
from prunecast.simulator.launch_gap import with_prefetch
from tests.naive.records import POLICIES, Item, Kernel, Machine, Work

__all__ = ["kernel_of", "machine_of", "work_of"]

TICKS = 4096
FMA_OF_A_WARP = 32


def kernel_of(context: LaunchContext) -> Kernel:
    """Programs and shapes of a launch."""
    plan = context.plan
    return Kernel(
        programs=context.programs if context.prologue_is_hidden else with_prefetch(context),
        stages=plan.resources.stages,
        fewest_steps=plan.fewest_steps,
        **plan.shape._asdict(),
    )


def machine_of(plan: KernelPlan, gpu: GpuSpec, lowered: engine_state.Machine, panel: int) -> Machine:
    """The engine's numbers of the GPU, and the plan's rates of arithmetic per sub-partition."""
    tensor_fma_per_clk_per_sm = (
        0.0 if plan.tensor == "none" else tensor_fma_per_clk(gpu, plan.dtype, plan.tensor)
    )
    return Machine(
        sms=lowered.sms,
        partitions=lowered.partitions,
        slots=lowered.slots,
        policy=POLICIES[lowered.policy],
        block_start=lowered.block_start,
        barrier_latency=lowered.barrier_latency,
        sync_latency=lowered.sync_latency,
        signal_latency=lowered.signal_latency,
        l2_latency=lowered.l2_latency,
        gather_latency=lowered.gather_latency,
        store_latency=lowered.store_latency,
        dram_latency=lowered.dram_latency,
        shared_latency=lowered.shared_latency,
        tensor_latency=lowered.tensor_latency,
        port_ticks_per_kib=lowered.port_ticks,
        gather_ticks_per_kib=lowered.gather_ticks,
        store_ticks_per_kib=lowered.store_ticks,
        l2_ticks_per_kib=lowered.l2_ticks,
        l2_store_ticks_per_kib=lowered.l2_store_ticks,
        dram_ticks_per_kib=lowered.dram_ticks,
        dram_write_ticks_per_kib=lowered.dram_write_ticks,
        l2_contention=lowered.l2_contention,
        dram_queue=lowered.dram_queue,
        block_interval=lowered.block_interval,
        answer_interval=lowered.answer_interval,
        shared_ticks_per_kib=lowered.shared_ticks,
        tensor_ticks_per_kfma=_whole_ticks(1024, tensor_fma_per_clk_per_sm / lowered.partitions),
        fma_ticks=_whole_ticks(FMA_OF_A_WARP, gpu.fp32_fma_per_clk_per_sm / lowered.partitions),
        l2_capacity=lowered.l2_capacity,
        panel=panel,
    )


def _whole_ticks(amount: int, per_clk: float) -> int:
    """Ticks for an amount; the twin takes only GPUs where they are whole numbers."""
    ticks = amount * TICKS / per_clk if per_clk else 0.0
    if not ticks.is_integer():
        raise ValueError(f"{per_clk} per clock is no whole number of ticks for {amount}")
    return int(ticks)


def work_of(context: LaunchContext) -> Work:
    """The work list of a launch as records."""
    plan, slots, gpu = context.plan, context.fit.blocks_per_sm, context.gpu
    tiles, work, rules = plan.tiles, plan.work, memory_rules(context)
    columns = [tuple(tiles.column_index[start:stop].tolist()) for start, stop in pairwise(tiles.column_start)]
    rows = [int(stop - start) for start, stop in pairwise(tiles.row_start)]
    items = [
        Item(
            tile=int(work.tile[i]),
            k_start=int(work.k_start[i]),
            k_count=int(work.k_stop[i] - work.k_start[i]),
            zeros=0 if plan.padded is None else int(plan.padded[work.tile[i]] - work.k_stop[i]),
            rows=rows[work.tile[i]],
            tokens=int(work.token_stop[i] - work.token_start[i]),
            token_start=int(work.token_start[i]),
            group=int(work.group[i]),
            parts=int(work.parts[i]),
            owner=bool(work.owner[i]),
        )
        for i in range(plan.item_count)
    ]
    start, schedule, blocks = work.block_start.tolist(), plan.schedule, plan.blocks
    if context.places is not None:
        items, start = piled_up(items, slots, gpu.sm_count)
        schedule, blocks = Schedule.STATIC, len(start) - 1
    return Work(
        schedule=schedule,
        blocks=blocks,
        block_start=tuple(start),
        items=tuple(items),
        columns=tuple(columns),
        rows_in_l2=context.weights_evict_first,
        early_sms=rules.early_blocks,
        box_parts=rules.box_parts,
    )


def piled_up(items: list[Item], slots: int, sms: int) -> tuple[list[Item], list[int]]:
    """Items by the place of their block: of few blocks those that whole launches leave over lie together and
    come first; of more than SMs too, and the others slot by slot on the other SMs; unequal ones as launches
    that follow one another leave them.
    """
    left = list(items)
    at: dict[int, Item] = {}
    deep = slots * sms >= 12 * len(items)
    if len({item.k_count + item.zeros for item in items}) > 1 and not deep:
        at = unequal_places(items, slots, sms)
        left = []
    elif len(items) <= sms:
        each, full = (2, 2) if deep else (slots, slots * sms % len(items) // slots)
        full = 0 if slots < 2 or (deep and len(items) < 24) else full
        for slot in range(each):
            for sm in range(full):
                at[slot * sms + sm] = left.pop(0)
        for sm in range(full, full + len(left)):
            at[sm] = left.pop(0)
    full = slots * sms % max(len(items), 1) // slots
    for together in (range(full), range(full, sms)):
        for slot in range(slots):
            for sm in together:
                if left:
                    at[slot * sms + sm] = left.pop(0)
    start = [0]
    for place in range(max(at) + 1):
        start.append(start[-1] + (place in at))
    return [at[place] for place in sorted(at)], start


def unequal_places(items: list[Item], slots: int, sms: int) -> dict[int, Item]:
    """Of a launch among those that follow one another: the last one that takes about as long as all do."""
    count = len(items)
    work = [max(item.k_count + item.zeros, 1) for item in items]
    found, longest = _one_after_another(work, slots, sms, followed(count, slots, sms))
    apart = [abs(cycles - np.mean(longest)) for cycles in longest]
    sm = next(s for s, a in zip(found[::-1], apart[::-1], strict=True) if a <= min(apart) * (1.0 + 1e-9))
    firsts = sorted(set(sm), key=lambda s: (-sm.count(s), sm.index(s)))
    return {sm[:i].count(sm[i]) * sms + firsts.index(sm[i]): items[i] for i in range(count)}


def burst_depths(blocks: int, slots: int, sms: int) -> dict[int, tuple[float, float]]:
    """Of launches of equal blocks in a burst: most blocks on an SM -> share of the launches, and how many SMs
    have so many, on the mean. Depths that few launches have are left out.
    """
    found, _ = _one_after_another([1] * blocks, slots, sms, BURST)
    counts = [[sm.count(each) for each in set(sm)] for sm in found]
    alike: dict[int, list[int]] = {}
    for own in counts:
        alike.setdefault(max(own), []).append(own.count(max(own)))
    often = {depth: full for depth, full in alike.items() if len(full) >= RARE * BURST}
    total = sum(map(len, often.values()))
    return {depth: (len(full) / total, sum(full) / len(full)) for depth, full in sorted(often.items())}


def _one_after_another(
    work: list[int], slots: int, sms: int, launches: int
) -> tuple[list[list[int]], list[float]]:
    """The SM of each block of launches that follow one another, and how long each launch takes."""
    count = len(work)
    jitter = 1.0 + JITTER * np.random.default_rng(count).standard_normal((launches, count))
    queue = [place % sms for place in range(slots * sms)]
    found, longest = [], []
    for launch in range(launches):
        sm, queue = queue[:count], queue[count:]
        ends = [_end(work, sm, i) for i in range(count)]
        queue += [sm[i] for i in sorted(range(count), key=lambda i: (ends[i] * jitter[launch][i], i))]
        found.append(sm)
        longest.append(max(ends))
    return found, longest


def _end(work: list[int], sm: list[int], i: int) -> float:
    """What two blocks on one SM both do they do half in turns."""
    others = (work[j] for j in range(len(work)) if j != i and sm[j] == sm[i])
    return work[i] + sum(min(work[i], other) for other in others) / 2.0
