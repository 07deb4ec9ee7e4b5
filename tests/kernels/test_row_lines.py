"""Rows that begin within a line of L2, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.models import estimate
from prunecast.patterns import TileMap
from prunecast.plan.misaligned import (
    copied_row_bytes,
    gather_line_cost,
    in_sector_share,
    planned_tokens,
    row_bytes_of,
    store_cost,
    two_line_share,
    word_bytes,
)
from prunecast.plan.program import WHOLE_LINES, Instruction, Op, WarpProgram
from prunecast.simulator import simulate

H200 = load_gpu("h200-sxm")


def plan_of(tokens, gpu=H200, kernel="stspmm"):
    tiles = TileMap(
        m=2048,
        k=512,
        row_start=np.arange(17) * 128,
        row_index=np.arange(2048),
        column_start=np.arange(17) * 256,
        column_index=np.tile(np.arange(0, 512, 2), 16),
        pattern="tile-wise:128",
    )
    return fastest_plan(kernel, tiles, tokens, "fp16", gpu)


@pytest.mark.parametrize(
    ("gpu", "kernel", "costs_more"),
    [("h200-sxm", "stspmm", True), ("h200-sxm", "tile-wise", True), ("a100-sxm4-80gb", "stspmm", False)],
)
def test_row_starts_are_charged_to_the_kernel_that_gathers_with_wgmma(gpu, kernel, costs_more):
    programs = plan_of(6280, load_gpu(gpu), kernel).programs
    assert (gather_line_cost(programs) > 1.0) == costs_more
    assert (store_cost(programs) != (1.0, 0.0)) == costs_more


@pytest.mark.parametrize(
    ("tokens", "lines", "sectors"),
    [
        (6272, 0, 0),
        (6304, 1 / 2, 0),
        (6288, 3 / 4, 0),
        (6280, 7 / 8, 1 / 2),
        (64, 0, 0),
        (32, 0, 0),
        (16, 0, 0),
    ],
)
def test_every_second_row_of_6304_tokens_begins_in_the_middle_of_a_line(tokens, lines, sectors):
    starts = np.arange(64) * tokens * 2
    piece = min(2 * tokens, 128)
    assert two_line_share(2 * tokens) == lines == np.mean(starts // 128 != (starts + piece - 1) // 128)
    assert in_sector_share(2 * tokens) == sectors == np.mean(starts % 32 > 0)


@pytest.mark.parametrize("row_bytes", range(16, 288, 16))
def test_pieces_are_counted_as_they_lie(row_bytes):
    starts, piece = np.arange(64) * row_bytes, min(row_bytes, 128)
    assert two_line_share(row_bytes) == np.mean(starts // 128 != (starts + piece - 1) // 128)


def costs_of(tokens, field, gpu=H200):
    found = {}
    for program in plan_of(tokens, gpu).programs:
        for code in (program.start, program.begin, program.fill, program.step, program.end):
            for instruction in code:
                found.setdefault(instruction.op, set()).add(getattr(instruction, field))
    return found


@pytest.mark.parametrize(("tokens", "read", "stored"), [(4128, 1.125, 1.0), (4136, 1.96875, 2.0)])
def test_gathers_and_stores_cost_more_and_nothing_else_does(tokens, read, stored):
    lines, pieces = costs_of(tokens, "line_cost"), costs_of(tokens, "piece_cost")
    assert lines.pop(Op.GATHER_B) == pieces.pop(Op.GATHER_B) == {round(read * WHOLE_LINES)}
    assert lines.pop(Op.STORE_C) == {round(stored * WHOLE_LINES)}
    assert set().union(*lines.values(), *pieces.values()) == {WHOLE_LINES}
    fetched = costs_of(tokens, "fetched")
    assert fetched.pop(Op.STORE_C) == {0 if stored == 1 else round(0.375 * WHOLE_LINES)}
    assert set().union(*fetched.values()) == {0}


def test_what_they_cost_stands_in_the_gpus_file():
    """4136 tokens: 7/8 of the pieces in two lines, half of the rows within a sector."""
    other = replace(
        H200,
        l2_second_line_share=1.0,
        l2_split_sector_read_factor=1.0,
        l2_split_sector_store_factor=2.0,
        l2_split_sector_fetched_share=0.0,
    )
    assert costs_of(4136, "line_cost", other)[Op.GATHER_B] == {round(1.375 * WHOLE_LINES)}
    assert costs_of(4136, "line_cost", other)[Op.STORE_C] == {round(1.5 * WHOLE_LINES)}
    assert costs_of(4136, "fetched", other)[Op.STORE_C] == {0}


def test_padded_copies_begin_with_lines():
    assert store_cost(plan_of(4129).programs) == (1.0, 0.0)
    assert costs_of(4129, "line_cost")[Op.GATHER_B] == {WHOLE_LINES}


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_rows_that_begin_within_lines_pass_more_of_l2(engine):
    """Measured 2 to 5 % longer where L2 or DRAM is what a product waits for."""
    aligned, unaligned = (engine(plan_of(tokens), H200).seconds for tokens in (16_384, 16_352))
    assert 0.98 * aligned < unaligned < 1.06 * aligned


@pytest.mark.parametrize("engine", [simulate, estimate])
def test_rows_that_begin_within_sectors_take_much_longer(engine):
    """Measured 12 to 48 % longer with 6280 tokens than with 6272 (0007)."""
    aligned, unaligned = (engine(plan_of(tokens), H200).seconds for tokens in (6272, 6280))
    assert 1.10 * aligned < unaligned < 1.60 * aligned


@given(tokens=st.integers(1, 2000), element_bytes=st.sampled_from([1, 2, 4]))
def test_copied_rows_are_the_shortest_that_begin_with_a_sector_and_lie_in_the_fewest_lines(
    tokens, element_bytes
):
    """Whole lines, or below a line a power of two from 16 bytes on: pieces then never lie in two lines."""
    needed, found = tokens * element_bytes, copied_row_bytes(tokens, element_bytes)
    allowed = [16, 32, 64, *range(128, 2 * 128 + needed, 128)]
    assert found == next(size for size in allowed if size >= needed)
    assert two_line_share(found) == 0.0
    assert row_bytes_of(tokens, element_bytes) == (needed if needed % 16 == 0 else found)


@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=3), element_bytes=st.sampled_from([1, 2, 4])
)
def test_words_of_copies_are_the_widest_that_fit(lengths, element_bytes):
    whole = [length * element_bytes for length in lengths]
    widest = max(size for size in (1, 2, 4, 8) if all(length % size == 0 for length in whole))
    assert word_bytes(element_bytes, *whole) == widest >= element_bytes


@pytest.mark.parametrize("costs", [[], [WHOLE_LINES], [WHOLE_LINES, 2 * WHOLE_LINES]])
def test_the_dearest_gather_says_what_rows_cost(costs):
    step = (*(Instruction(Op.GATHER_B, 64, line_cost=cost) for cost in costs), Instruction(Op.FMA))
    program = WarpProgram(role="w", warps=1, step=step)
    assert gather_line_cost((program,)) == max([1.0, *(cost / WHOLE_LINES for cost in costs)])


@pytest.mark.parametrize(
    ("tokens", "planned"),
    [(1, 1), (2, 8), (8, 8), (9, 16), (57, 64), (64, 64), (65, 128), (128, 128), (129, 192), (1000, 1024)],
)
def test_plans_in_torch_are_for_whole_words_of_few_tokens_and_whole_lines_of_many(tokens, planned):
    """Eight elements of two bytes are a word of 16 bytes, 64 are a line of L2."""
    assert planned_tokens(tokens) == planned
