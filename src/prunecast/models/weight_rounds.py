"""Weights that blocks ask for behind B: nothing of them can come before they are asked for."""

import numpy as np

from prunecast.launch.next_weights import before_b, weight_bytes_behind_b
from prunecast.models.case import Case
from prunecast.models.in_turns import in_turns_cycles
from prunecast.models.phases import phases_of_code
from prunecast.plan.program import Code, Op

__all__ = ["asks_again_cycles", "later_weights_s"]


def later_weights_s(case: Case) -> float:
    """Of DRAM, for the weights of all blocks that are asked for behind B."""
    return weight_bytes_behind_b(case.context) / case.gpu.dram_bytes_per_s


def asks_again_cycles(case: Case) -> float:
    """Of a block that has its SM to itself, until it asks for the first of these weights."""
    if not case.context.b_in_l2:
        return 0.0
    chain = case.steady_chain
    phases = np.array(phases_of_code(_until_later(chain.programs[0].begin), chain))
    warps, partitions = chain.programs[0].warps, chain.sub_partitions
    cycles = in_turns_cycles(*phases.T[:3], warps=warps, partitions=partitions)
    return case.gpu.block_start_cycles + float(cycles.sum())


def _until_later(begin: Code) -> Code:
    """Until weights are asked for behind B."""
    first = len(before_b(begin))
    behind = (place for place, i in enumerate(begin) if place >= first and i.op is Op.LOAD_A)
    return begin[: next(behind, len(begin))]
