"""Rows that begin within a line of L2, and what they cost."""

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels.program import WHOLE_LINES, Op
from prunecast.kernels.row_lines import two_line_share
from prunecast.kernels.stspmm import plan_stspmm
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")


def plan_of(tokens):
    tiles = TileMap(
        m=2048,
        k=512,
        row_start=np.arange(17) * 128,
        row_index=np.arange(2048),
        column_start=np.arange(17) * 256,
        column_index=np.tile(np.arange(0, 512, 2), 16),
        pattern="tile-wise:128",
    )
    return plan_stspmm(tiles, tokens, "fp16", H200)


@pytest.mark.parametrize(
    ("tokens", "share"),
    [(6272, 0.0), (6304, 0.5), (6288, 0.75), (6280, 0.875), (64, 0.0), (32, 0.0), (16, 0.0), (1, 0.0)],
)
def test_every_second_row_of_6304_tokens_begins_in_the_middle_of_a_line(tokens, share):
    starts = np.arange(64) * tokens * 2 % 128
    assert two_line_share(tokens, 2) == share
    if tokens >= 64:
        assert share == np.mean(starts > 0)


def test_gathers_cost_more_and_nothing_else_does():
    costs = {}
    for program in plan_of(4128).programs:
        for code in (program.start, program.begin, program.fill, program.step, program.end):
            for instruction in code:
                costs.setdefault(instruction.op, set()).add(instruction.line_cost)
    assert costs.pop(Op.GATHER_B) == {round(1.125 * WHOLE_LINES)}
    assert set().union(*costs.values()) == {WHOLE_LINES}


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_rows_that_begin_within_lines_pass_more_of_l2(engine):
    """Measured 2 to 4 % longer where L2 or DRAM is what a product waits for."""
    aligned, unaligned = (engine(plan_of(tokens), H200).seconds for tokens in (16_384, 16_352))
    assert 0.98 * aligned < unaligned < 1.06 * aligned
