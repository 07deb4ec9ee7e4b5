"""The engine's slow, obvious twin: docs/reference/engine_rules.md in plain objects and a heap of events.

Written from that page alone. Nothing here is clever or fast: where it and the engine differ, one of them
breaks the page.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count

from prunecast.plan.program import WHOLE_LINES, Op
from tests.naive.barriers import Barriers
from tests.naive.items import Items
from tests.naive.memory import Memory
from tests.naive.parts import TICKS, Barrier, Block, Sm, SubPartition, Warp, byte_cost
from tests.naive.records import Kernel, Machine, NaiveResult, Work
from tests.naive.walk import COPIES, Todo, applicable, applicable_outside

__all__ = ["simulate_naively"]


def simulate_naively(machine: Machine, kernel: Kernel, work: Work) -> NaiveResult:
    """What the page says happens. Raises RuntimeError where warps wait for ever."""
    return Simulation(machine, kernel, work).simulate()


class Simulation:
    """One launch."""

    def __init__(self, machine: Machine, kernel: Kernel, work: Work) -> None:
        self.machine, self.kernel, self.work = machine, kernel, work
        self.memory = Memory(machine, kernel, work)
        self.items = Items(kernel, work)
        self.barriers = Barriers(kernel, work)
        self.sms = [Sm(number, machine.partitions) for number in range(machine.sms)]
        self.events: list[tuple[int, int, int, Callable[[int], None]]] = []
        self.running_number = count()
        self.next_block = 0
        self.result = NaiveResult(sm_busy=[0] * machine.sms)

    def simulate(self) -> NaiveResult:
        """Run to the end."""
        machine, first = self.machine, min(self.work.blocks, self.machine.slots * self.machine.sms)
        for slot in range(machine.slots):
            for sm in self.sms:
                # Half of the blocks start before the mean
                apart = (2 * self.next_block - (first - 1)) * machine.block_interval // (2 * TICKS)
                self.place_next(sm, slot, 0, max(machine.block_start + apart, 0))
        while self.events:
            cycle, _, _, happen = heapq.heappop(self.events)
            happen(cycle)
        if any(sm.blocks for sm in self.sms):
            raise RuntimeError("warps wait for each other")
        memory, result = self.memory, self.result
        result.sm_tensor_ticks = [sum(part.tensor.worked for part in sm.parts) for sm in self.sms]
        result.sm_items = [sm.items for sm in self.sms]
        result.l2_bytes, result.dram_bytes = memory.l2_bytes, memory.dram_bytes
        result.l2_hit_bytes, result.l2_miss_bytes = memory.hit_bytes, memory.miss_bytes
        return result

    def at(self, cycle: int, happen: Callable[[int], None]) -> None:
        """What happens to others, before the turns of that cycle."""
        heapq.heappush(self.events, (cycle, 0, next(self.running_number), happen))

    def turn_at(self, cycle: int, part: SubPartition) -> None:
        """A scheduling turn of a sub-partition."""
        if cycle not in part.turns:
            part.turns.add(cycle)
            heapq.heappush(self.events, (cycle, 1, part.place, lambda now: self.turn(part, now)))

    # Blocks and items

    def place_next(self, sm: Sm, slot: int, cycle: int, ready: int) -> None:
        """Place the next block, if there is one; its warps can issue from cycle `ready` on."""
        if self.next_block == self.work.blocks:
            return
        block = Block(self.next_block, sm, slot)
        self.next_block += 1
        if sm.blocks == 0:
            sm.busy_since = cycle
        sm.blocks += 1
        self.items.run_of(block, 0)
        ranks = [(program, rank) for program in self.kernel.programs for rank in range(program.warps)]
        block.alive = len(ranks)
        for number, (program, rank) in enumerate(ranks):
            warp = Warp(block, program, rank, number, cycle)
            warp.index = slot * len(ranks) + number
            warp.part = sm.parts[warp.index % self.machine.partitions]
            warp.part.warps.append(warp)
            warp.way = self.way(warp)
            warp.todo = next(warp.way)
            self.wake(warp, ready)

    def retire(self, block: Block, cycle: int) -> None:
        """Give the block's slot to the next one."""
        self.result.cycles = max(self.result.cycles, cycle)
        sm = block.sm
        sm.blocks -= 1
        if sm.blocks == 0:
            self.result.sm_busy[sm.number] += cycle - sm.busy_since
        self.place_next(sm, block.slot, cycle, cycle + self.machine.block_start)

    def way(self, warp: Warp) -> Iterator[Todo | None]:
        """What the warp issues one by one; None is EXIT."""
        yield from applicable_outside(warp.program.start, warp.rank)
        for place in count():
            run = self.items.run_of(warp.block, place)
            if run is None:
                break
            yield from applicable(self.kernel, warp.program, self.work, warp.rank, run)
        yield from applicable_outside(warp.program.finish, warp.rank)
        yield None

    # Scheduling

    def wake(self, warp: Warp, cycle: int) -> None:
        """The warp's sleep ends at that cycle."""
        warp.ready = cycle
        self.turn_at(max(cycle, warp.part.port_free), warp.part)

    def turn(self, part: SubPartition, cycle: int) -> None:
        """Issue at most one instruction."""
        part.turns.discard(cycle)
        if cycle < part.port_free:
            return
        for warp in self.candidates(part, cycle):
            self.book_sleep(warp, cycle)
            if not self.must_wait(warp, cycle):
                self.issue(warp, cycle)
                break
        for warp in part.warps:
            if warp.ready is not None:
                self.turn_at(max(warp.ready, part.port_free), part)

    def candidates(self, part: SubPartition, cycle: int) -> list[Warp]:
        """The ready warps in the order of the policy."""
        ready = [warp for warp in part.warps if warp.ready is not None and warp.ready <= cycle]
        policy = self.machine.policy
        if policy == "lrr":
            return sorted(ready, key=lambda warp: (warp.index <= part.last_index, warp.index))
        ready.sort(key=lambda warp: warp.age, reverse=policy == "gty")
        if policy != "oldest":
            ready.sort(key=lambda warp: warp is not part.last)
        return ready

    def book_sleep(self, warp: Warp, cycle: int) -> None:
        self.result.stalls[warp.reason] += warp.ready - warp.slept
        self.result.stalls["not selected"] += cycle - warp.ready
        warp.slept = cycle

    def must_wait(self, warp: Warp, cycle: int) -> bool:
        """Whether the warp's instruction is a wait that does not pass; then the warp sleeps."""
        todo = warp.todo
        if todo is None:
            return False
        op = todo.code.op
        if op == Op.WAIT_LOAD:
            done = warp.load_done if todo.code.amount == 0 else warp.arrived_for(todo)
            return self.sleep_until(warp, cycle, "wait load", done)
        if op == Op.WAIT_MMA:
            done = warp.last_mma if todo.code.amount == 0 else warp.previous_mma
            return self.sleep_until(warp, cycle, "wait tensor", done)
        if op == Op.WAIT_FULL:
            return self.sleep_at(warp, "wait data", self.barriers.full(warp.block, todo.global_step))
        if op == Op.WAIT_EMPTY and todo.global_step >= self.kernel.stages:
            earlier = todo.global_step - self.kernel.stages
            return self.sleep_at(warp, "wait slot", self.barriers.empty(warp.block, earlier))
        if op == Op.WAIT_PARTS:
            return self.sleep_at(warp, "fix-up", self.barriers.group(todo.run.item))
        return False

    def sleep_until(self, warp: Warp, cycle: int, reason: str, wake: int) -> bool:
        warp.reason = reason
        warp.ready = max(cycle, wake)
        return wake > cycle

    def sleep_at(self, warp: Warp, reason: str, barrier: Barrier) -> bool:
        if barrier.missing == 0:
            return False
        warp.reason, warp.ready = reason, None
        barrier.sleepers.append(warp)
        return True

    # Barriers

    def arrive_later(self, barrier: Barrier, done: int, now: int) -> None:
        # What one warp does reaches others at the earliest in the next cycle.
        self.at(max(done, now + 1), lambda cycle: self.arrive(barrier, cycle))

    def arrive(self, barrier: Barrier, cycle: int) -> None:
        """One arrival; the last one wakes the sleepers."""
        barrier.missing -= 1
        if barrier.missing == 0:
            for warp in barrier.sleepers:
                self.wake(warp, cycle + self.machine.barrier_latency)

    def signal_later(self, barrier: Barrier, done: int, now: int) -> None:
        self.at(max(done, now + 1), lambda cycle: self.signal(barrier, cycle))

    def signal(self, barrier: Barrier, cycle: int) -> None:
        """A part of a group has delivered; its latency has been counted already."""
        barrier.missing -= 1
        if barrier.missing == 0:
            for warp in barrier.sleepers:
                self.wake(warp, cycle)

    def meet(self, warp: Warp, cycle: int) -> None:
        """SYNC."""
        met = warp.block.met[warp.program.role]
        met.append(warp)
        warp.reason, warp.ready = "barrier", None
        if len(met) == warp.program.warps:
            for other in met:
                self.wake(other, max(other.slept, cycle + max(1, self.machine.sync_latency)))
            met.clear()

    # Instructions

    def issue(self, warp: Warp, cycle: int) -> None:
        """Issue the warp's instruction and find its next one."""
        part, todo = warp.part, warp.todo
        length = 1 if todo is None else todo.length
        self.result.stalls["issuing"] += length
        self.result.instructions += length
        self.result.operations += 1
        part.port_free = warp.slept = warp.ready = cycle + length
        part.last, part.last_index = warp, warp.index
        if todo is None:
            self.exit(warp, cycle)
        else:
            self.take_effect(warp, todo, cycle)
            warp.todo = next(warp.way)

    def exit(self, warp: Warp, cycle: int) -> None:
        warp.part.last = None
        warp.part.warps.remove(warp)
        self.result.resident_warp_cycles += cycle + 1 - warp.placed
        warp.block.alive -= 1
        if warp.block.alive == 0:
            self.retire(warp.block, max(cycle + 1, warp.block.stored))

    def take_effect(self, warp: Warp, todo: Todo, cycle: int) -> None:
        """What the instruction does beyond taking the issue port."""
        op, sm = todo.code.op, warp.block.sm
        if op == Op.ISSUE:
            self.sleep_after(warp, "wait shared", warp.ready + todo.amount)
        elif op in COPIES:
            done = self.memory.read(sm, cycle, todo, warp)
            passed = self.memory.bytes_of(todo, warp) + todo.code.operand_bytes * todo.times
            written, ring = warp.block.written, todo.global_step % self.kernel.stages
            written[ring] += byte_cost(passed, self.machine.shared_ticks_per_kib)
            full = self.barriers.full(warp.block, todo.global_step)
            self.arrive_later(full, done + todo.code.late, cycle)
        elif op == Op.WAIT_FULL:
            self.find_full(warp.block, todo.global_step % self.kernel.stages, cycle)
        elif op == Op.LOAD_A and todo.code.posted:
            self.memory.bring_for_next(todo.amount)
        elif op in (Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX):
            done = self.memory.read(sm, cycle, todo, warp)
            warp.load_done = max(warp.load_done, done)
            warp.note_arrival(todo, done)
        elif op == Op.RELEASE:
            released = todo.run.base + todo.current - todo.code.amount
            self.arrive_later(self.barriers.empty(warp.block, released), cycle + 1, cycle)
        elif op in (Op.MMA, Op.BLOCKING_MMA):
            self.multiply(warp, todo, cycle)
        elif op == Op.FMA:
            done = warp.part.fma.charge(cycle, todo.length * self.machine.fma_ticks)
            self.sleep_after(warp, "wait tensor", done)
        elif op == Op.SHARED:
            done = self.through_shared(sm, cycle, todo.amount) + self.machine.shared_latency
            if not todo.code.posted:
                self.sleep_after(warp, "wait shared", done)
        elif op == Op.SYNC:
            self.meet(warp, cycle)
        elif op in (Op.STORE_C, Op.STORE_PARTIAL, Op.LOAD_PARTIALS):
            self.move_sums(warp, todo, cycle)

    def sleep_after(self, warp: Warp, reason: str, done: int) -> None:
        warp.reason = reason
        warp.ready = max(warp.ready, done)

    def through_shared(self, sm: Sm, cycle: int, size: int) -> int:
        return sm.shared.charge(cycle, byte_cost(size, self.machine.shared_ticks_per_kib))

    def find_full(self, block: Block, ring: int, cycle: int) -> None:
        """What was written to the slot passes shared memory, by now if there was room."""
        cost = block.written.pop(ring, 0)
        if cost:
            block.sm.shared.end_by(cycle, cost)

    def multiply(self, warp: Warp, todo: Todo, cycle: int) -> None:
        cost = math.ceil(todo.code.amount * self.machine.tensor_ticks_per_kfma / 1024) * todo.times
        operands = todo.code.operand_bytes * todo.times
        done = max(warp.part.tensor.charge(cycle, cost), self.through_shared(warp.block.sm, cycle, operands))
        warp.previous_mma, warp.last_mma = warp.last_mma, done + self.machine.tensor_latency
        if todo.code.op == Op.BLOCKING_MMA:
            self.sleep_after(warp, "wait tensor", done)

    def move_sums(self, warp: Warp, todo: Todo, cycle: int) -> None:
        """Store C or partial sums, or load the others' partial sums."""
        item, op, sm = todo.run.item, todo.code.op, warp.block.sm
        clipped = todo.amount
        if not todo.code.whole:
            clipped = clipped * item.rows * item.tokens // (self.kernel.block_m * self.kernel.block_n)
        if op == Op.LOAD_PARTIALS:
            size = clipped * (item.parts - 1)
            done = self.memory.through_l2(sm, cycle, size, size) + self.machine.l2_latency
            if todo.code.late > 0:
                asked = cycle + (item.parts - 1) * todo.code.late
                done = max(done, asked + self.machine.l2_latency)
            else:
                done = max(done, self.memory.gather(sm, cycle, size))
                done += (item.parts - 2) * self.machine.gather_latency
            warp.load_done = max(warp.load_done, done)
            return
        done = self.memory.take_stores(sm, cycle, clipped, todo.code)
        performed = done + self.machine.store_latency
        if not todo.code.posted:
            self.sleep_after(warp, "wait store", done if op == Op.STORE_C else performed)
        else:
            warp.reason = "wait store"
        warp.block.stored = max(warp.block.stored, performed)
        if op == Op.STORE_C:
            self.memory.from_dram(cycle, clipped * todo.code.fetched // WHOLE_LINES)
            written = self.memory.to_dram(cycle, clipped)
            self.result.cycles = max(self.result.cycles, written)
            self.memory.keep_written(todo.run.number, clipped)
        else:
            if todo.code.whole:
                self.memory.to_dram(cycle, clipped)
                self.memory.keep_written(todo.run.number, clipped)
            self.signal_later(self.barriers.group(item), performed + self.machine.signal_latency, cycle)
