"""Laws of the engine: what must hold between runs, and between the numbers of one run.

"Faster hardware or less work is never slower" is no law of scheduling in general: with several warps a
change of speed changes the order in which they meet at a server, and an order that is better for one
may be worse for all (Graham's anomalies). It must hold where the order cannot change: blocks of one
warp, one block at a time on an SM, where every time is a maximum of sums of costs. Kept out of those
laws besides: the latency of barriers, which only sleepers pay, so that a wait that comes later may pass
earlier; and evictions from L2, which depend on the order in which SMs touch it.
"""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from prunecast.plan.program import When
from tests.naive.cases import equal_blocks
from tests.naive.engine_adapter import simulate_fast
from tests.naive.parts import TICKS
from tests.naive.programs import kernels, one_warp_kernels
from tests.naive.records import Item, Kernel, Machine, Work
from tests.naive.walk import Run, applicable, applicable_outside
from tests.naive.works import machines, works

LAW = settings(max_examples=60, deadline=None)
COSTS = (
    "port_ticks_per_kib",
    "l2_ticks_per_kib",
    "dram_ticks_per_kib",
    "shared_ticks_per_kib",
    "tensor_ticks_per_kfma",
    "fma_ticks",
    "l2_latency",
    "dram_latency",
    "shared_latency",
    "tensor_latency",
    "block_start",
)


def one_after_the_other(machine: Machine) -> Machine:
    """The GPU with one block per SM, no barrier latency and an L2 that holds all."""
    return replace(machine, slots=1, barrier_latency=0, l2_capacity=1 << 30)


@LAW
@given(machine=machines(), kernel=one_warp_kernels(), blocks=st.integers(1, 12), kept=st.integers(0, 40))
def test_more_sms_are_never_slower(machine: Machine, kernel: Kernel, blocks: int, kept: int) -> None:
    # L2 and DRAM are free of charge here, for reads and for writes: SMs share them, and more SMs would
    # make longer queues. (Five stores at once wait for each other at DRAM, one by one they do not.)
    shared = (
        *("l2_ticks_per_kib", "dram_ticks_per_kib", "l2_store_ticks_per_kib"),
        "dram_write_ticks_per_kib",
    )
    machine = replace(one_after_the_other(machine), **dict.fromkeys(shared, 0))
    work = equal_blocks(blocks, kept)
    runs = [simulate_fast(replace(machine, sms=sms), kernel, work).cycles for sms in (1, 2, 3, 5, 12)]
    assert runs == sorted(runs, reverse=True)


@LAW
@given(
    machine=machines(),
    kernel=one_warp_kernels(),
    blocks=st.integers(1, 4),
    kept=st.integers(0, 40),
    cost=st.sampled_from(COSTS),
    share=st.sampled_from((0.0, 0.3, 0.9)),
)
def test_faster_units_are_never_slower(
    machine: Machine, kernel: Kernel, blocks: int, kept: int, cost: str, share: float
) -> None:
    slow = replace(one_after_the_other(machine), sms=1)
    fast = replace(slow, **{cost: int(share * getattr(slow, cost))})
    work = equal_blocks(blocks, kept)
    assert simulate_fast(fast, kernel, work).cycles <= simulate_fast(slow, kernel, work).cycles


@LAW
@given(
    machine=machines(),
    kernel=one_warp_kernels(),
    blocks=st.integers(1, 4),
    kept=st.integers(0, 40),
    less=st.integers(1, 20),
)
def test_fewer_kept_columns_are_never_slower(
    machine: Machine, kernel: Kernel, blocks: int, kept: int, less: int
) -> None:
    machine = replace(one_after_the_other(machine), sms=1)
    more = simulate_fast(machine, kernel, equal_blocks(blocks, kept))
    fewer = simulate_fast(machine, kernel, equal_blocks(blocks, max(0, kept - less)))
    assert fewer.cycles <= more.cycles
    assert fewer.operations <= more.operations


@LAW
@given(data=st.data())
def test_names_of_tiles_do_not_matter(data: st.DataObject) -> None:
    """Tiles in another order, with the items that name them: nothing changes."""
    machine, kernel, work = draw_launch(data)
    order = data.draw(st.permutations(range(len(work.columns))))
    renamed = replace(
        work,
        items=tuple(replace(item, tile=order.index(item.tile)) for item in work.items),
        columns=tuple(work.columns[tile] for tile in order),
    )
    assert simulate_fast(machine, kernel, renamed) == simulate_fast(machine, kernel, work)


@LAW
@given(machine=machines(), kernel=kernels(), kept=st.integers(0, 40), order=st.permutations(range(7)))
def test_order_of_equal_blocks_does_not_matter(
    machine: Machine, kernel: Kernel, kept: int, order: list[int]
) -> None:
    work = equal_blocks(len(order), kept)
    permuted = replace(work, items=tuple(work.items[place] for place in order))
    assert simulate_fast(machine, kernel, permuted) == simulate_fast(machine, kernel, work)


@LAW
@given(data=st.data())
def test_running_twice_gives_the_same(data: st.DataObject) -> None:
    launch = draw_launch(data)
    assert simulate_fast(*launch) == simulate_fast(*launch)


def held_up(kernel: Kernel) -> Kernel:
    """The kernel with every store holding its warp up: a posted one leaves a slot taken and no warp there."""
    return replace(
        kernel,
        programs=tuple(
            replace(program, end=tuple(code._replace(posted=False) for code in program.end))
            for program in kernel.programs
        ),
    )


@LAW
@given(data=st.data())
def test_no_cycle_of_a_warp_is_lost(data: st.DataObject) -> None:
    machine, kernel, work = draw_launch(data)
    result = simulate_fast(machine, held_up(kernel), work)
    warps = sum(program.warps for program in kernel.programs)
    assert all(cycles >= 0 for cycles in result.stalls.values())
    assert all(busy <= result.cycles for busy in result.sm_busy)
    # While an SM is busy, one to all of the warps it has room for are resident.
    still_storing = machine.store_latency * work.blocks
    assert sum(result.sm_busy) - still_storing <= result.stalls.total()
    assert result.stalls.total() <= sum(result.sm_busy) * warps * machine.slots
    first = min(work.blocks, machine.slots * machine.sms)
    apart = [(2 * i - first + 1) * machine.block_interval // (2 * TICKS) for i in range(first)]
    starts = [max(machine.block_start + cycles, 0) for cycles in apart]
    starts += [machine.block_start] * (work.blocks - first)
    assert result.stalls["fetch"] == warps * sum(starts)
    assert result.stalls["issuing"] == result.instructions


@LAW
@given(machine=machines(), kernel=one_warp_kernels(), blocks=st.integers(1, 9), kept=st.integers(0, 40))
def test_one_warp_per_sm_accounts_for_every_busy_cycle(
    machine: Machine, kernel: Kernel, blocks: int, kept: int
) -> None:
    machine = replace(machine, slots=1, store_latency=0)  # it leaves the slot taken and no warp there
    result = simulate_fast(machine, held_up(kernel), equal_blocks(blocks, kept))
    assert result.stalls.total() == sum(result.sm_busy)
    assert result.stalls["not selected"] == 0


def steps_of(kernel: Kernel, item: Item) -> int:
    return -(-kernel.multiplied(item) // kernel.block_k)


def without_refills(kernel: Kernel) -> Kernel:
    """What is done again in a slot depends on the items that a block had before."""
    sections = ("begin", "fill", "step", "end")
    programs = tuple(
        replace(p, **{s: tuple(i for i in getattr(p, s) if i.when < When.REFILL) for s in sections})
        for p in kernel.programs
    )
    return replace(kernel, programs=programs)


@LAW
@given(data=st.data())
def test_no_operation_is_lost(data: st.DataObject) -> None:
    machine, kernel, work = draw_launch(data)
    kernel = without_refills(kernel)
    result = simulate_fast(machine, kernel, work)
    todos = [
        todo
        for program in kernel.programs
        for rank in range(program.warps)
        for item in work.items
        for todo in applicable(kernel, program, work, rank, Run(0, item, 0, steps_of(kernel, item)))
    ] + [
        todo
        for program in kernel.programs
        for rank in range(program.warps)
        for code in (program.start, program.finish)
        for todo in applicable_outside(code, rank)
    ] * work.blocks
    exits = work.blocks * sum(program.warps for program in kernel.programs)
    assert result.operations == len(todos) + exits
    assert result.instructions == sum(todo.length for todo in todos) + exits
    assert sum(result.sm_items) == len(work.items)


@LAW
@given(data=st.data())
def test_no_unit_works_more_than_it_can(data: st.DataObject) -> None:
    machine, kernel, work = draw_launch(data)
    result = simulate_fast(machine, kernel, work)
    assert result.instructions <= result.cycles * machine.sms * machine.partitions
    assert result.l2_miss_bytes <= result.dram_bytes


def draw_launch(data: st.DataObject) -> tuple[Machine, Kernel, Work]:
    machine = data.draw(machines())
    kernel = data.draw(kernels())
    work = data.draw(works(kernel, machine))
    assume(work.blocks > 0)
    return machine, kernel, work
