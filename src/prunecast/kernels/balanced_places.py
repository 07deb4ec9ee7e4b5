"""Where the blocks of a one-token launch lie, and what of an SM each of them takes.

Launches that start early lie on the GPU several deep, as many as find room. What is left over takes the first
blocks of one more, as many to an SM as fit; the others follow blocks that end, one to an SM (0006).
"""

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.order import Assigned
from prunecast.kernels.plan import Schedule

__all__ = ["MOST_REGISTERS", "left_over", "let_go_s", "vector_registers"]

MOST_REGISTERS = 96
"""Of a thread; what the plan allows."""


FEWEST_REGISTERS = 40
"""With which three blocks fit on an SM: fp16, one row a warp, segments of 64. The same in bf16 has 44."""
DEEPEST = 12
"""Launches on the GPU at once from which on blocks do not come to lie together. A burst begins with blocks
that have an SM each; those of 24 and 32 blocks, 16 and 12 launches deep, still change places after 240
launches, of which every other one has at most pairs. Of 48 to 128 blocks all lie as said here, of 64 blocks
behind some 60 launches (H200, clock stamps of 2026-11-21)."""
LET_GO_S = 0.48e-6
"""From the last instruction of a launch to the first one behind the wait of the next, whose blocks are there:
448 to 608 ns, 22 products of 16 to 128 blocks (H200, clock stamps of 2026-11-21)."""


def let_go_s(blocks: int, fit: int, gpu: GpuSpec) -> float:
    """0 where a launch leaves no room for all blocks of the next: these start when others end."""
    return LET_GO_S if gpu.compute_capability >= 90 and 2 * blocks <= fit * gpu.sm_count else 0.0


def left_over(assigned: Assigned, fit: int, sms: int) -> Assigned:
    """Lists of one item for places with a block, empty ones for the others: place p is on SM p mod `sms`.

    Of `fit * sms` places whole launches take all but a few, which lie together on as few SMs as hold them:
    blocks that share an SM end last, and their places are given out last, to the first blocks of a launch
    that finds no others.
    """
    blocks = assigned.blocks
    together = 0 if fit * sms >= DEEPEST * blocks else fit * sms % blocks // fit * fit
    alone = blocks - together
    if fit < 2 or together == 0 or together // fit + alone > sms:
        return assigned
    taken = np.zeros(fit * sms, np.int32)
    taken[: together // fit + alone] = 1
    for slot in range(1, fit):
        taken[slot * sms : slot * sms + together // fit] = 1
    taken = np.trim_zeros(taken, "b")
    start = np.concatenate(([0], np.cumsum(taken))).astype(np.int32)
    return Assigned(assigned.work._replace(block_start=start), Schedule.STATIC, taken.size)


def vector_registers(rows: int, segment: int, index_bytes: int, dtype: str) -> int:
    """Registers of a thread of the kernel for one token, as compiled for sm_90."""
    if dtype == "fp32":
        return _FP32[index_bytes][rows - 1]
    if rows > 1:
        return _HALF[index_bytes][rows - 2]
    if index_bytes == 1 and segment == 64 and dtype == "fp16":
        return FEWEST_REGISTERS
    return 48 if index_bytes == 1 else 52


_FP32 = {1: (54, 70, 85, 80), 2: (56, 75, 75, 92)}
"""By bytes of a place: of one to four rows a warp."""
_HALF = {1: (56, 79, 64), 2: (64, 64, 72)}
"""Of two to four rows; fp16 and bf16, whatever the segment, within three."""
