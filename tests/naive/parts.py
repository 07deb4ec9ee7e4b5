"""The parts of the simulated GPU and what is resident on it."""

from collections import defaultdict
from collections.abc import Iterator

from prunecast.plan.program import WarpProgram
from tests.naive.walk import Run, Todo

__all__ = ["TICKS", "Barrier", "Block", "L2Queues", "Server", "Sm", "SubPartition", "Warp", "byte_cost"]

TICKS = 4096


def byte_cost(size: int, ticks_per_kib: int) -> int:
    """Ticks that a server needs for so many bytes."""
    return -(-size * ticks_per_kib // 1024)


class Server:
    """Serves requests one after the other; counts in ticks."""

    def __init__(self) -> None:
        self.free = 0
        self.worked = 0

    def charge(self, cycle: int, cost: int) -> int:
        """The cycle in which the request is done."""
        self.free = max(self.free, cycle * TICKS) + cost
        self.worked += cost
        return -(-self.free // TICKS)

    def end_by(self, cycle: int, cost: int) -> None:
        """A request that is done by that cycle, or as much later as the others keep the server."""
        self.free = max(self.free + cost, cycle * TICKS)
        self.worked += cost


class L2Queues:
    """L2: reads wait for reads and stores for stores, and the two take turns; counts in ticks."""

    def __init__(self, contention: int) -> None:
        self.contention = contention
        self.left = {"read": 0, "store": 0}
        """Work of each kind that is left at tick `since`."""
        self.since = 0

    def charge(self, kind: str, cycle: int, cost: int) -> int:
        """The cycle in which the request is done, if none comes after it."""
        self.serve_until(cycle * TICKS)
        self.left[kind] += cost
        least = min(self.left.values())
        return -(-(self.since + self.left[kind] + least * self.contention // 256) // TICKS)

    def serve_until(self, tick: int) -> None:
        """Both kinds slowly as long as both wait, then the other one at its own rate."""
        passed, least = tick - self.since, min(self.left.values())
        slowly, then = passed * 256 // (256 + self.contention), passed - least * self.contention // 256
        served = max(slowly, then)
        self.left = {kind: max(left - served, 0) for kind, left in self.left.items()}
        self.since = tick


class Barrier:
    """One phase of one barrier: complete when none of the expected arrivals is missing."""

    def __init__(self, expected: int) -> None:
        self.missing = expected
        self.sleepers: list[Warp] = []


class SubPartition:
    """A warp scheduler with its pipes."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.tensor, self.fma = Server(), Server()
        self.warps: list[Warp] = []
        self.port_free = 0
        self.last: Warp | None = None
        self.last_index = -1
        self.turns: set[int] = set()


class Sm:
    """A multiprocessor."""

    def __init__(self, number: int, partitions: int) -> None:
        self.number = number
        self.port, self.gather = Server(), Server()
        self.store, self.shared = Server(), Server()
        self.parts = [SubPartition(number * partitions + p) for p in range(partitions)]
        self.blocks = self.items = 0
        self.busy_since = 0


class Block:
    """A resident thread block, its items so far and its barriers by global step."""

    def __init__(self, number: int, sm: Sm, slot: int) -> None:
        self.number, self.sm, self.slot = number, sm, slot
        self.runs: list[Run] = []
        self.full: dict[int, Barrier] = {}
        self.empty: dict[int, Barrier] = {}
        self.met: dict[str, list[Warp]] = defaultdict(list)
        self.written: dict[int, int] = defaultdict(int)
        self.alive = 0
        self.stored = 0


class Warp:
    """A resident warp. `ready` is None while it sleeps with no known end; a todo of None is EXIT."""

    def __init__(self, block: Block, program: WarpProgram, rank: int, number: int, placed: int) -> None:
        self.block, self.program, self.rank, self.number = block, program, rank, number
        self.placed = self.slept = placed
        self.ready: int | None = None
        self.reason = "fetch"
        self.load_done = self.last_mma = self.previous_mma = 0
        self.arrivals: dict[tuple[int, int], int] = {}
        self.part: SubPartition
        self.index: int
        self.way: Iterator[Todo | None]
        self.todo: Todo | None

    def note_arrival(self, todo: Todo, cycle: int) -> None:
        """A load for the step that it acts on has come at that cycle."""
        key = (id(todo.run), todo.step % 8)
        self.arrivals[key] = max(self.arrivals.get(key, 0), cycle)

    def arrived_for(self, todo: Todo) -> int:
        """When the last load for the current step, or one that many times eight away, has come."""
        return self.arrivals.get((id(todo.run), todo.current % 8), 0)

    @property
    def age(self) -> tuple[int, int]:
        """Older warps have smaller ones."""
        return (self.block.number, self.number)
