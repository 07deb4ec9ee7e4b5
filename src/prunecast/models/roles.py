"""What the roles of a plan's programs do: fetch, multiply, wait for one another's sums."""

from functools import lru_cache

from prunecast.plan.program import Op, WarpProgram, When

COPIES = (Op.COPY_A, Op.COPY_B, Op.GATHER_B)
LOADS = (Op.LOAD_A, Op.LOAD_B, Op.LOAD_INDEX, Op.LOAD_PARTIALS)


@lru_cache(maxsize=64)
def runs_ahead(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps that only fetch go on to the next item while others still finish this one."""
    return any(fetches(program) and not multiplies(program) for program in programs)


@lru_cache(maxsize=64)
def waits_for_parts(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether owners of split tiles collect the sums themselves; else another launch adds them up."""
    return any(i.op is Op.WAIT_PARTS for program in programs for i in program.end)


@lru_cache(maxsize=64)
def has_edges(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps do something else in items with fewer tokens than a block takes."""
    parts = ("start", "begin", "fill", "step", "end", "finish")
    return any(i.when is When.EDGE for program in programs for part in parts for i in getattr(program, part))


def fetches(program: WarpProgram) -> bool:
    """Whether its warps copy or load in a k-step, or before the first one."""
    return any(i.op in (*COPIES, *LOADS) for i in (*program.fill, *program.step))


def multiplies(program: WarpProgram) -> bool:
    """Whether its warps multiply in a k-step."""
    return any(i.op in (Op.MMA, Op.MMA_SYNC, Op.FMA) for i in program.step)
