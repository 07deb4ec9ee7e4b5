"""What an item costs, in SM cycles: pipes and chains of waits laid over one another.

An item has three times. *Fetch*: its bytes through the SM's port, or its steps at the pace of the warps that
fetch, whichever takes longer. *Multiply*: its tensor work, issue slots and reads of shared memory, or its
steps at the pace of the warps that multiply. *Edge*: what these do around the steps. Where some warps only
fetch, they are up to a ring of stages ahead, and a list of items takes what its slower side takes
(`loops.run_lists`); else each item waits for its first stage, and nothing is fetched on the side.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from prunecast.models.bounds import copied_cycles, sm_level_cycles
from prunecast.models.case import Case
from prunecast.models.chain import Chain, runs_ahead
from prunecast.models.chains import after_parts_cycles, edge_cycles, multiply_pace, phases_around, walk_pace
from prunecast.models.in_turns import greedy_cycles, in_turns_cycles
from prunecast.models.terms import FloatArray, Quantity
from prunecast.patterns.tile_map import MaskArray
from prunecast.plan.program import Op, WarpProgram


class Costs(NamedTuple):
    """Cycles of kinds of items, each (kinds,) float64."""

    fetch: FloatArray
    """0 where no warps only fetch, and without k-steps."""
    fetch_last: FloatArray
    """Part of `fetch` that is its last k-step."""
    multiply: FloatArray
    last: FloatArray
    """Last k-step of the pipes' work: it waits for the last data fetched."""
    edge: FloatArray
    demand: FloatArray
    """Cycles that the busiest pipe of the SM works for an item."""
    after_parts: FloatArray
    """Part of `edge` that an owner of split-K slices does once it has the signals of the others."""


def item_costs(case: Case) -> Costs:
    """Cycles of every kind of item whose data keep coming."""
    amounts, rates = case.amounts, case.rates
    chain = case.steady_chain
    steps, edges = sm_level_cycles(amounts.steps, rates), sm_level_cycles(amounts.edges, rates)
    if each_for_itself(case):
        edge = _around_in_turns(case, edges, blocks=1)
    else:
        edge = np.maximum(_edge_chain(case, chain), np.maximum(edges["issue"], edges["shared"]))
    partitions = min(float(rates.sub_partitions), amounts.tensor_warps)
    tensor = steps["tensor"] * rates.sub_partitions / partitions
    pipes = np.maximum(tensor, np.maximum(steps["issue"], steps["shared"]))
    pace = _pace_of_steps(case, chain, walk_pace)
    if runs_ahead(case.context.programs):
        multiply = np.maximum(pipes, _pace_of_steps(case, chain, multiply_pace).all)
        fetch = np.maximum(steps["l2 port"], pace.all)
        fetch_last = np.maximum(pace.all - (amounts.step_count - 1.0) * pace.whole, 0.0)
    else:
        multiply = np.maximum(np.maximum(pipes, steps["l2 port"]), pace.all)
        if each_for_itself(case):
            multiply = np.maximum(multiply, _steps_in_turns(case, steps, pace, blocks=1))
            multiply += _last_rows(case, multiply)
        fetch = fetch_last = np.zeros_like(multiply)
    demand = _demand(case, steps, edges, edge, pace)
    stored = amounts.edges[:, Quantity.C] + amounts.edges[:, Quantity.PARTIALS_OUT]
    demand = np.maximum(demand, stored / case.gpu.store_bytes_per_clk_per_sm)
    after_parts = after_parts_cycles(chain) + _sums_in(case)
    return Costs(fetch, fetch_last, multiply, _last_step(case, steps), edge, demand, after_parts)


def _demand(
    case: Case,
    steps: dict[str, FloatArray],
    edges: dict[str, FloatArray],
    edge: FloatArray,
    pace: "_Steps",
) -> FloatArray:
    """(kinds,): of the busiest pipe; where all blocks begin and end together, of each phase's busiest, which
    warps that no barrier holds together do not keep busy.

    pace : of a block that is alone
    """
    if not case.context.co_resident:
        return np.asarray(np.max([steps[level] + edges[level] for level in steps], axis=0, initial=0.0))
    in_steps, around = (np.max(list(phase.values()), axis=0, initial=0.0) for phase in (steps, edges))
    if each_for_itself(case):
        blocks = case.context.crowd
        in_steps = np.maximum(in_steps, _steps_in_turns(case, steps, pace, blocks=blocks))
        in_steps += _last_rows(case, blocks * in_steps) / blocks
        return np.asarray(in_steps + _around_in_turns(case, edges, blocks=blocks))
    return np.asarray(in_steps + np.maximum(around, edge / case.context.crowd))


def each_for_itself(case: Case) -> bool:
    """Whether no barrier holds warps together in the steps of blocks that begin and end together."""
    steps = (instruction for program in case.context.programs for instruction in program.step)
    return case.context.co_resident and not any(instruction.op is Op.SYNC for instruction in steps)


def _steps_in_turns(case: Case, levels: dict[str, FloatArray], pace: "_Steps", *, blocks: int) -> FloatArray:
    """(kinds,): a block's share of what the steps of `blocks` that are together take: those that ask for
    later ones, then as many as a ring has, which do not.
    """
    amounts = case.amounts
    asking = np.maximum(amounts.step_count - _most_ahead(case.context.programs), 0.0)
    share = asking / np.maximum(amounts.step_count, 1.0)
    asks = sm_level_cycles(amounts.asks, case.rates)
    first = {level: asks[level] + share * (levels[level] - asks[level]) for level in ("issue", "shared")}
    last = {level: levels[level] - first[level] for level in first}
    alone = np.minimum(asking * pace.whole, pace.all)
    return _phase_in_turns(case, first, alone, blocks=blocks) + _phase_in_turns(
        case, last, pace.all - alone, blocks=blocks
    )


def _phase_in_turns(
    case: Case, levels: dict[str, FloatArray], alone: FloatArray, *, blocks: int
) -> FloatArray:
    """(kinds,): the same of a phase. Behind it warps wait for one another, so that the last one counts."""
    of_block = sum(program.warps for program in case.context.programs)
    partitions = case.rates.sub_partitions
    issue = levels["issue"] * partitions / of_block
    last = greedy_cycles(alone, issue, -(-blocks * of_block // partitions))
    return np.maximum(_in_turns(case, levels, alone, blocks=blocks), last / blocks)


def _in_turns(case: Case, levels: dict[str, FloatArray], alone: FloatArray, *, blocks: int) -> FloatArray:
    """(..., kinds): a block's share of what `blocks` that are together take for a phase.

    alone : (..., kinds) cycles of a warp that has the SM to itself
    """
    of_block = sum(program.warps for program in case.context.programs)
    partitions = case.rates.sub_partitions
    cycles = in_turns_cycles(
        alone,
        levels["issue"] * partitions / of_block,
        levels["shared"] / of_block,
        warps=blocks * of_block,
        partitions=partitions,
    )
    return np.asarray(cycles / blocks)


def _around_in_turns(case: Case, edges: dict[str, FloatArray], *, blocks: int) -> FloatArray:
    """(kinds,): a block's share of what `blocks` that are together take before and after the steps, phase by
    phase. Of what a kind issues and passes through the port each phase has the share that its program says.
    """
    phases = np.array(phases_around(case.steady_chain))[..., None]
    alone, behind_others = (phases[:, column] + 0.0 * edges["issue"] for column in (0, 3))
    share = phases[:, 1:3] / np.maximum(phases[:, 1:3].sum(axis=0), 1.0)
    levels = {"issue": share[:, 0] * edges["issue"], "shared": share[:, 1] * edges["shared"]}
    turns = _in_turns(case, levels, alone, blocks=blocks)
    return np.asarray(np.maximum(turns, (alone + behind_others) / blocks).sum(axis=0))


def _last_rows(case: Case, steps: FloatArray) -> FloatArray:
    """(kinds,): that the last rows of a first ring, asked for when the first ones are there, come behind the
    steps before theirs, of all `steps` cycles.
    """
    if case.context.b_in_l2:
        return np.zeros_like(steps)
    count = case.amounts.step_count
    before = np.clip(count, 1.0, max(_most_ahead(case.context.programs), 1)) - 1.0
    late = case.gpu.dram_latency_cycles - steps * before / np.maximum(count, 1.0)
    return np.where(before > 0.0, np.maximum(late, 0.0), 0.0)


class _Steps(NamedTuple):
    """Cycles at a pace, each (kinds,) float64."""

    all: FloatArray
    """Cycles of all steps."""
    whole: FloatArray | float
    """Cycles of a whole step; one number where all kinds have it."""


def _pace_of_steps(case: Case, chain: Chain, pace: Callable[[Chain], float]) -> _Steps:
    """Whole steps and a last one between a step of 16 columns and a whole one; slower where tokens lack."""
    k16, steps = -(-case.plan.shape.block_k // 16), case.amounts.step_count
    lacks = case.amounts.tokens < case.plan.shape.block_n
    ahead = 0 if runs_ahead(case.context.programs) else _most_ahead(case.context.programs)
    whole, end, short, first = _paces(chain, lacks, pace, ahead > 0)
    last = short + (case.amounts.last_k16 - 1.0) / max(k16 - 1, 1) * (end - short)
    if ahead:
        ends = np.clip(steps, 1.0, ahead) - 1.0
        cycles = (steps - 1.0 - ends) * whole + ends * end + last
        cycles -= np.minimum(steps, chain.stages) * (end - first)
    else:
        cycles = (steps - 1.0) * whole + last
    return _Steps(np.where(steps > 0, cycles, 0.0), whole)


class _Paces(NamedTuple):
    """Cycles of kinds of steps: (kinds,), or one number where no item lacks tokens."""

    whole: FloatArray | float
    end: FloatArray | float
    """A step that asks for no later one."""
    short: FloatArray | float
    """A step of 16 columns that asks for no later one."""
    first: FloatArray | float
    """A step of a block's first ring, where warps ask ahead."""


def _paces(chain: Chain, lacks: MaskArray, pace: Callable[[Chain], float], asks: bool) -> _Paces:
    full = _paces_of(chain, pace, asks)
    if not lacks.any():
        return full
    lacking = _paces_of(chain.where_tokens_lack(), pace, asks)
    return _Paces(*(np.where(lacks, less, all_of) for less, all_of in zip(lacking, full, strict=True)))


@lru_cache(maxsize=256)
def _paces_of(chain: Chain, pace: Callable[[Chain], float], asks: bool) -> _Paces:
    """Asks : warps ask for later steps than they multiply"""
    ending = chain.asking_no_more() if asks else chain
    first = pace(ending.of_first_ring()) if asks else 0.0
    return _Paces(pace(chain), pace(ending), pace(ending.with_short_steps()), first)


def _most_ahead(programs: tuple[WarpProgram, ...]) -> int:
    """Steps by which the warps ask ahead of what they multiply."""
    return max((i.ahead for program in programs for i in program.step), default=0)


def _last_step(case: Case, steps: dict[str, FloatArray]) -> FloatArray:
    """(kinds,): what the other steps, which are whole, leave for tensor pipes and reads of shared memory."""
    whole, others = sm_level_cycles(case.amounts.step, case.rates), case.amounts.step_count - 1.0
    tensor = steps["tensor"] - others * float(whole["tensor"])
    read = steps["shared"] - copied_cycles(case.amounts.steps, case.rates)
    read -= others * (float(whole["shared"]) - float(copied_cycles(case.amounts.step, case.rates)))
    return np.asarray(np.max([tensor, read, np.zeros_like(others)], axis=0))


def _sums_in(case: Case) -> FloatArray:
    """(kinds,): cycles in which an owner reads the other parts' sums, which come by the way of gathers, or
    as its producer asks for them; beyond those of the first part's first bytes.

    Part after part: those of one fill the ring, and make room for the next one's when they have been added.
    """
    sums = case.amounts.edges[:, Quantity.PARTIALS_IN]
    more_parts = np.where(sums > 0.0, case.plan.work.parts[case.amounts.kinds.example] - 2, 0)
    late = max((i.late for p in case.context.programs for i in p.end if i.op is Op.LOAD_PARTIALS), default=0)
    if late:
        return np.asarray(more_parts * float(late))
    rate = min(case.rates.port_bytes_per_clk, float(case.gpu.gather_bytes_per_clk_per_sm))
    return np.asarray(sums / rate + more_parts * case.gpu.gather_latency_cycles)


def _edge_chain(case: Case, chain: Chain) -> FloatArray:
    """(kinds,): the multiplying warps' own cycles before and after the steps."""
    sections, example = ("begin", "end"), case.amounts.kinds.example
    parts, owner = case.plan.work.parts[example], case.plan.work.owner[example]
    edge = np.full(example.size, edge_cycles(chain, sections, "unsplit"))
    split = parts > 1
    if split.any():
        edge[split & (owner == 1)] = edge_cycles(chain, sections, "owner")
        edge[split & (owner == 0)] = edge_cycles(chain, sections, "part")
        edge += _sums_in(case)
    return edge
