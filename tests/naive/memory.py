"""L2 and DRAM of the slow simulator, and which segments an instruction touches."""

import math
from collections import OrderedDict
from itertools import groupby

from prunecast.plan.program import WHOLE_LINES, Instruction, Op, When
from tests.naive.parts import TICKS, L2Queues, Server, Sm, Warp, byte_cost
from tests.naive.records import Kernel, Machine, Work
from tests.naive.walk import Todo

__all__ = ["Memory"]

Key = tuple[str, int, int, int]


class Memory:
    """The chip's L2 port traffic, its L2 as an exact LRU of segments, and DRAM."""

    def __init__(self, machine: Machine, kernel: Kernel, work: Work) -> None:
        self.machine, self.kernel, self.work = machine, kernel, work
        self.l2, self.dram = L2Queues(machine.l2_contention), Server()
        self.held: OrderedDict[Key, tuple[int, int]] = OrderedDict()  # size and fill time, oldest use first
        self.held_bytes = 0
        self.prefetched = self.others_read = 0
        """Ticks at which DRAM has read the last weights of a prefetch, and the last of other data."""
        self.unwritten = 0
        """Ticks that DRAM needs for what L2 has yet to hand over."""
        self.l2_bytes = self.hit_bytes = self.miss_bytes = self.dram_bytes = 0

    def read(self, sm: Sm, cycle: int, todo: Todo, warp: Warp) -> int:
        """The page's mem(bytes, segments): the cycle in which the data are there."""
        size = self.bytes_of(todo, warp)
        line_size = size * todo.code.line_cost // WHOLE_LINES
        done = self.through_l2(sm, cycle, size, line_size, todo.code.multicast) + self.machine.l2_latency
        if todo.code.op == Op.GATHER_B:
            done = max(done, self.gather(sm, cycle, self.gathered_bytes(todo, warp)))
        latency = self.machine.gather_latency
        if todo.code.op == Op.LOAD_INDEX and sm.gather.free > 0:
            done = max(done, math.ceil(sm.gather.free / TICKS) + latency, cycle + latency // 2)
        ahead = todo.code.when is When.AHEAD
        fills = [
            self.touch(key, size, cycle, ahead) for key, size in self.segments_of(todo, warp) if size > 0
        ]
        filled = max(fills, default=0)
        if todo.code.op == Op.GATHER_B and filled > cycle:
            # What comes from DRAM passes the port after it
            done = max(done, filled - self.machine.dram_latency + self.stage_cycles(todo))
        return max(done, filled)

    def stage_cycles(self, todo: Todo) -> int:
        """Of the gather port for a step's rows, and the way to the SM."""
        size = self.stage_bytes(todo)
        cycles = math.ceil(byte_cost(size, self.machine.gather_ticks_per_kib) / TICKS)
        return cycles + self.machine.gather_latency

    def gather(self, sm: Sm, cycle: int, size: int) -> int:
        """The cycle in which so many bytes have come through the gather port."""
        return sm.gather.charge(cycle, byte_cost(size, self.machine.gather_ticks_per_kib)) + (
            self.machine.gather_latency
        )

    def gathered_bytes(self, todo: Todo, warp: Warp) -> int:
        """What a warp copies: its share of whole groups of 16 columns, kept or zeros."""
        return self.stage_bytes(todo) // warp.program.warps

    def stage_bytes(self, todo: Todo) -> int:
        """What rows of a step take of the gather port: as many bytes where pieces lie as they should."""
        size = 16 * math.ceil(todo.multiplied / 16) * self.row_bytes(todo)
        return size * todo.code.piece_cost // WHOLE_LINES

    def through_l2(self, sm: Sm, cycle: int, size: int, line_size: int, multicast: int = 1) -> int:
        """The cycle in which port and L2 have passed so many bytes, which cost L2 as much as `line_size`."""
        l2_size = -(-line_size // multicast)
        self.l2_bytes += l2_size
        return max(
            sm.port.charge(cycle, byte_cost(size, self.machine.port_ticks_per_kib)),
            self.l2.charge("read", cycle, byte_cost(l2_size, self.machine.l2_ticks_per_kib)),
        )

    def take_stores(self, sm: Sm, cycle: int, size: int, code: Instruction) -> int:
        """The cycle in which store port and L2 have taken so many bytes."""
        self.l2_bytes += size
        pieces = size * code.piece_cost // WHOLE_LINES
        cost = byte_cost(pieces, self.machine.store_ticks_per_kib)
        if code.queued:
            # In front of it pass as many bytes of gathers, if they wait; the others wait for it
            begins = max(sm.store.free, cycle * TICKS)
            waiting = max(sm.gather.free - begins, 0)
            sm.gather.free = max(sm.gather.free, begins) + cost
            sm.store.free = begins + min(waiting, byte_cost(pieces, self.machine.gather_ticks_per_kib))
        line_size = size * code.line_cost // WHOLE_LINES
        return max(
            sm.store.charge(cycle, cost),
            self.l2.charge("store", cycle, byte_cost(line_size, self.machine.l2_store_ticks_per_kib)),
        )

    def bring_for_next(self, size: int) -> None:
        """What blocks of the next launch asked for before this one began."""
        self.l2_bytes += size
        self.miss_bytes += size
        self.from_dram(0, size)

    def from_dram(self, cycle: int, size: int, prefetch: bool = False) -> int:
        """The cycle in which DRAM has read so many bytes."""
        self.write_while_idle(cycle)
        self.dram_bytes += size
        cost = byte_cost(size, self.machine.dram_ticks_per_kib)
        self.dram.charge(cycle, cost)
        done = self.dram.free
        if prefetch:
            self.prefetched = done
            return math.ceil(done / TICKS)
        if cycle * TICKS < self.prefetched:
            # Only the weights of the queue are in front of it
            queued = (cycle + self.machine.dram_queue) * TICKS
            done = min(done, max(self.others_read, queued) + cost)
        self.others_read = done
        return math.ceil(done / TICKS)

    def to_dram(self, cycle: int, size: int) -> int:
        """The earliest cycle in which the launch may end, which writes so many bytes more."""
        self.write_while_idle(cycle)
        ticks_per_kib = self.machine.dram_write_ticks_per_kib
        self.dram_bytes += size
        self.unwritten += byte_cost(size, ticks_per_kib)
        self.dram.worked += byte_cost(size, ticks_per_kib)
        # L2 holds no more than its size of what DRAM has yet to write
        most = self.machine.l2_capacity * ticks_per_kib // 1024
        if self.unwritten > most:
            self.dram.free += self.unwritten - most
            self.others_read += self.unwritten - most
            self.unwritten = most
        return math.ceil(self.dram.worked / TICKS)

    def write_while_idle(self, cycle: int) -> None:
        """DRAM writes in the time until now in which it had nothing to read."""
        idle = max(cycle * TICKS - self.dram.free, 0)
        self.dram.free += idle
        self.unwritten = max(self.unwritten - idle, 0)

    def touch(self, key: Key, size: int, cycle: int, prefetch: bool) -> int:
        """Make the segment the most recent one, fetching it if it is absent; its fill time."""
        if self.work.rows_in_l2 and key[0] == "rows of B":
            self.hit_bytes += size
            return 0
        if key in self.held:
            self.hit_bytes += size
            self.held.move_to_end(key)
            size, filled = self.held[key]
            if filled > cycle:
                filled += self.machine.answer_interval
                self.held[key] = (size, filled)
            return filled
        self.miss_bytes += size
        filled = self.from_dram(cycle, size, prefetch) + self.machine.dram_latency
        self.held[key] = (size, filled)
        self.held_bytes += size
        self.drop_oldest()
        return filled

    def keep_written(self, item: int, size: int) -> None:
        """What was written of an item's C lies in L2 together, last used now."""
        if size > 0:
            before, _ = self.held.pop(("C", item, 0, 0), (0, 0))
            self.held["C", item, 0, 0] = (before + size, 0)
            self.held_bytes += size
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Until the others fit."""
        while self.held_bytes > self.machine.l2_capacity:
            _, (size, _) = self.held.popitem(last=False)
            self.held_bytes -= size

    def bytes_of(self, todo: Todo, warp: Warp) -> int:
        """Bytes that a copy or load moves."""
        if todo.code.op in (Op.COPY_A, Op.LOAD_A, Op.LOAD_INDEX):
            return todo.amount
        columns = todo.columns if todo.code.op == Op.COPY_B else self.share(todo, warp)
        return len(columns) * self.row_bytes(todo)

    def segments_of(self, todo: Todo, warp: Warp) -> list[tuple[Key, int]]:
        """The segments that a copy or load touches, with their sizes."""
        item, op = todo.run.item, todo.code.op
        if op in (Op.COPY_A, Op.LOAD_A, Op.LOAD_INDEX):
            step = item.k_start // self.kernel.block_k + todo.step
            name = "index" if op == Op.LOAD_INDEX else "A"
            reader = warp.number if op == Op.LOAD_INDEX else warp.rank
            return [((name, item.tile, step, reader), todo.amount)]
        if op == Op.COPY_B:
            box = todo.columns[0] // self.kernel.block_k
            part = item.tile % self.work.box_parts
            return [(("box of B", box, item.token_start, part), self.bytes_of(todo, warp))]
        panels = [
            panel for panel, _ in groupby(self.share(todo, warp), lambda column: column // self.machine.panel)
        ]
        size = self.machine.panel * self.row_bytes(todo)
        return [(("rows of B", panel, item.token_start, 0), size) for panel in panels]

    def row_bytes(self, todo: Todo) -> int:
        return todo.amount * todo.run.item.tokens // self.kernel.block_n

    def share(self, todo: Todo, warp: Warp) -> tuple[int, ...]:
        """The columns of the step that this warp of the role gathers."""
        count, warps = len(todo.columns), warp.program.warps
        return todo.columns[count * warp.rank // warps : count * (warp.rank + 1) // warps]
