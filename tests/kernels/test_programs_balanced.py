"""Programs of the balanced kernels: what is waited for, and times that were measured."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.choice import fastest_plan, product_of
from prunecast.hardware import load_gpu
from prunecast.kernels.balanced.kernel import MOST_VECTOR_ROWS, matrix_layout
from prunecast.kernels.balanced.layout import WARPS, BalancedLayout, VectorLayout, choose_rest, vector_layout
from prunecast.kernels.balanced.programs import Sharers, _balanced_costs, _TokenRow, matrix_programs
from prunecast.kernels.balanced.vector_programs import (
    FEWEST_REGISTERS,
    MOST_REGISTERS,
    vector_programs,
    vector_registers,
)
from prunecast.launch import launch_context
from prunecast.launch.floor import padded_copy_seconds
from prunecast.models import estimate
from prunecast.patterns import ElementMap, element_map_from_columns, element_map_from_mask, parse_pattern
from prunecast.plan.kernel_plan import PlanDoesNotFit
from prunecast.plan.program import Code, Op, When
from prunecast.simulator import simulate
from tests.toy_gpu import toy_gpu

H200 = load_gpu("h200-sxm")


def balanced_map(m: int, k: int, kept_of_64: int) -> ElementMap:
    order = np.random.default_rng(m + k).random((m, k // 64, 64)).argsort(axis=2)
    elements = parse_pattern("balanced:64").map((order < kept_of_64).reshape(m, k))
    assert isinstance(elements, ElementMap)
    return elements


@pytest.mark.parametrize(
    ("m", "k", "n", "kept_of_64", "us"),
    [
        (512, 2048, 1, 6, 1.97),
        (1024, 4096, 1, 6, 3.27),
        (768, 768, 1, 6, 2.23),
        (768, 768, 1, 32, 3.32),
        (512, 2048, 16, 16, 16.4),
        (1024, 4096, 16, 6, 19.8),
        (1024, 4096, 16, 16, 29.9),
        (768, 768, 256, 16, 8.69),
        (4096, 4096, 256, 32, 284.3),
        (512, 2048, 2048, 32, 134.7),
    ],
)
def test_cases_measured_on_an_h200(m: int, k: int, n: int, kept_of_64: int, us: float) -> None:
    """Recorded 2026-11-20 and 21, fp16, of those marked fit; means of the boards."""
    plan = fastest_plan("balanced", balanced_map(m, k, kept_of_64), n, "fp16", H200)
    assert simulate(plan, H200).seconds * 1e6 == pytest.approx(us, rel=0.12)


@pytest.mark.parametrize(
    ("n", "blocks", "first", "later"),
    [
        (16, 128, 2170, 2740),
        (16, 64, 1191, 1761),
        (16, 32, 702, 1272),
        (24, 80, 2187, 2757),
        (64, 128, 160, 730),
    ],
)
def test_blocks_that_read_the_same_rows_at_once_wait_for_each_other(
    n: int, blocks: int, first: int, later: int
) -> None:
    """512 rows of 32 bytes take 15.3 cycles for each block and 350 beside, or the 832 in which a block asks
    for them; the port's 178 are counted apart. Stamps: the first ones come 875 to 1,300 cycles later with 128
    blocks than with few, 620 with 64, 120 with 40. A step has 610 before it asks, the first one 40.
    """
    layout = matrix_layout(balanced_map(2048, 2048, 16), 32)
    sharers = Sharers(blocks)
    (worker,) = matrix_programs(layout, 16, n, "fp16", H200, sharers=sharers)
    assert layout.window == 32
    assert [i.late for part in (worker.fill, worker.step) for i in part if i.op is Op.COPY_B] == [
        first,
        later,
    ]


def test_blocks_of_later_waves_do_not_ask_at_the_same_time() -> None:
    """9216 x 3072 x 4 at 94 %, 576 blocks, takes 2,500 cycles a step, and 2048 x 2048 x 16 3,700."""
    layout = matrix_layout(balanced_map(2048, 2048, 16), 32)
    one, many = (
        matrix_programs(layout, 16, 16, "fp16", H200, sharers=Sharers(128, waves))[0].fill[0].late
        for waves in (1, 2)
    )
    assert one - many == pytest.approx(15.3 * 128 / 2, abs=1)


@pytest.mark.parametrize(
    ("tokens", "lines", "issue"),
    [
        (16, 2.0, 26),
        (24, 2.25, 40),
        (40, 2.5, 44),
        (48, 2.5, 33),
        (56, 2.75, 49),
        (64, 1.0, 26),
        (72, 1.875, 33),
    ],
)
def test_rows_that_begin_anywhere_are_asked_for_slowly(tokens: int, lines: float, issue: int) -> None:
    """Four rows of 48, 80, 96, 112 and 144 bytes take 10.0, 11.2, 8.1, 12.5 and 8.1 cycles of an SM
    (`gpu_hot`), a warp of each of whose four sub-partitions asks for four times as many.
    """
    row = _TokenRow(tokens, 2)
    assert (row.lines, row.copy_issue(_balanced_costs(H200))) == (lines, issue)


@pytest.mark.parametrize(
    ("windows", "splits", "share", "crowded"),
    [
        (32, 16, 1.0, 1.0),
        (40, 16, 40 / 48, 1.0),
        (20, 16, 20 / 32, 0.75),
        (12, 8, 0.75, 0.75),
        (18, 4, 0.9, 0.9),
    ],
)
def test_windows_of_a_split_lie_together(windows: int, splits: int, share: float, crowded: float) -> None:
    """Of 40 windows 13 splits have three and one has one; of 20 ten have two, three on a sub-partition."""
    layout = BalancedLayout(16, 4, np.zeros((16, windows), np.int32))
    assert layout.busy_splits(splits) == pytest.approx((share, crowded))


@pytest.mark.parametrize(("waves", "late"), [(1, 0), (2, 400), (4, 600)])
def test_blocks_of_later_waves_look_for_their_records_first(waves: int, late: int) -> None:
    """Those of the first wave do so while the launch before ends."""
    layout = matrix_layout(balanced_map(2048, 2048, 16), 32)
    (worker,) = matrix_programs(layout, 16, 16, "fp16", H200, sharers=Sharers(128, waves))
    assert next(i.late for i in worker.fill if i.op is Op.COPY_A) == late


def test_columns_that_are_not_there_are_asked_for_too() -> None:
    """Of the 640 x 640 product's two steps the second has a quarter of the columns; stamps: 1,870 cycles."""
    programs = [
        fastest_plan("balanced", balanced_map(640, k, 16), 16, "fp16", H200).programs[0] for k in (640, 1024)
    ]
    asked = [sum(i.issue for i in p.step if i.op is Op.COPY_A and not i.per_k16) for p in programs]
    assert asked == [208, 208]


@pytest.mark.parametrize(("chunks", "waits"), [(1, 1), (3, 1), (4, 3), (6, 3), (7, 5), (16, 11)])
def test_weights_beyond_the_first_three_chunks_are_waited_for(chunks: int, waits: int) -> None:
    """Of one row a warp three chunks are on their way when B comes. A round of three waits for all that was
    asked for, and once more for the chunk that it asks for first, where there is one.
    """
    (worker,) = vector_programs(VectorLayout(32, 64, chunks), 2048, 1, "fp16")
    assert _waits(worker.begin) == 1 + waits


@pytest.mark.parametrize(
    ("rows", "places", "dtype", "waits"),
    [
        (1, 64, "fp32", 3),
        (1, 256, "fp16", 2),
        (1, 256, "fp32", 5),
        (2, 64, "fp16", 2),
        (3, 64, "fp16", 5),
        (3, 64, "fp32", 2),
    ],
)
def test_which_chunks_are_waited_for_at_once(rows: int, places: int, dtype: str, waits: int) -> None:
    """Six chunks, as in loops compiled for sm_90: loads into other registers are waited for behind them."""
    (worker,) = vector_programs(VectorLayout(8, places, 6), 32 * places, rows, dtype)
    spread = next(i for i, instruction in enumerate(worker.begin) if instruction.op is Op.SYNC)
    assert _waits(worker.begin[spread:]) == waits


def test_every_chunk_comes_from_dram() -> None:
    """Each is the weights of a step of its own, none of which L2 has."""
    (worker,) = vector_programs(VectorLayout(32, 64, 16), 2048, 1, "fp16")
    assert sorted(i.ahead for i in worker.begin if i.op is Op.LOAD_A) == list(range(16))


@pytest.mark.parametrize(("k", "chunks", "columns"), [(128, 2, 64), (64, 2, 32), (256, 2, 128), (100, 3, 32)])
def test_short_rows_have_a_step_for_every_chunk(k: int, chunks: int, columns: int) -> None:
    """A lane may have more chunks of four elements than K has steps of 128: 6 of 8 columns are two chunks."""
    layout = VectorLayout(8, 8, chunks)
    assert layout.step_columns(k) == columns
    (worker,) = vector_programs(layout, k, 1, "fp16")
    assert sorted(i.ahead for i in worker.begin if i.op is Op.LOAD_A) == list(range(chunks))


def test_what_stands_between_the_wait_and_the_first_read_of_b() -> None:
    """55 instructions, compiled for sm_90; 40 of them are for the integer unit, which takes half a warp."""
    begin = vector_programs(VectorLayout(32, 64, 2), 2048, 1, "fp16")[0].begin
    before = begin[: [i.op for i in begin].index(Op.LOAD_B)]
    assert sum(i.issue for i in before if i.op is Op.ISSUE) == 2 * 40


def test_all_blocks_read_the_same_lines_of_b() -> None:
    """L2 hands them out one after the other: of a line of 128 bytes four sectors to every block."""
    few, many = (
        vector_programs(VectorLayout(64, 64, 2), 2048, 1, "fp16", blocks=blocks)[0].begin
        for blocks in (24, 128)
    )
    waits = [sum(i.amount for i in begin if i.op is Op.ISSUE) for begin in (few, many)]
    assert waits[1] - waits[0] == 4 * (128 - 24)


def test_sums_of_splits_are_handed_over() -> None:
    """Of sixteen warps that share a group of rows fifteen do so, and one adds them up in turn. All go through
    the eight stores of each of the fifteen, of which a warp's own take four passes of the port, others one.
    """
    layout = BalancedLayout(16, 4, np.zeros((4, 16), np.int32))
    alone, shared = (matrix_programs(layout, splits, 64, "fp16", H200)[0].end for splits in (1, 16))
    handed = [sum(i.amount for i in end if i.op is Op.SHARED) for end in (alone, shared)]
    assert [16 * amount // 128 for amount in handed] == [0, 8 * 15 * (16 + 3) + 4 * 8 * 15]
    waits = [sum(i.amount for i in end if i.op is Op.ISSUE) for end in (alone, shared)]
    assert waits[1] > 10 * 60 + waits[0]


def test_dense_columns_of_a_step() -> None:
    """They go in pairs, and a block's warps wait for the one that has most; here two warps and two steps."""
    layout = BalancedLayout(16, 4, np.array([[3, 1, 0, 4]] * 8, np.int32))
    columns = layout.dense_columns(2)
    assert columns.mean == (4 + 2 + 0 + 4) / 4
    # Windows 0 and 2 of the first step, 1 and 3 of the second
    assert columns.most == (4 + 4) / 2


def test_warps_that_wait_for_one_another_do_so_for_the_one_with_most() -> None:
    even, uneven = (BalancedLayout(16, 4, np.array([columns] * 8, np.int32)) for columns in ([4, 4], [8, 0]))
    waits = [
        [i.amount for i in matrix_programs(layout, 2, 64, "fp16", H200)[0].step if i.op is Op.ISSUE][-1]
        for layout in (even, uneven)
    ]
    assert waits[0] == 0 < waits[1]


@pytest.mark.parametrize(("places", "rounds"), [(16, 1), (64, 1), (96, 3), (128, 2)])
def test_b_is_read_four_pieces_at_a_time(places: int, rounds: int) -> None:
    """Of a warp; what is left over one by one."""
    (worker,) = vector_programs(VectorLayout(8, places, 1), 32 * places, 1, "fp16")
    spread = next(i for i, instruction in enumerate(worker.begin) if instruction.op is Op.SYNC)
    assert _waits(worker.begin[:spread]) == rounds


@given(k=st.integers(1, 4096), segment=st.sampled_from([8, 32, 256]), chunks=st.integers(1, 16))
def test_rows_of_b_of_every_step_are_read(k: int, segment: int, chunks: int) -> None:
    layout = VectorLayout(segment, -(-k // (32 * segment)) * segment, chunks)
    (worker,) = vector_programs(layout, k, 1, "fp16")
    steps = {i.ahead for i in worker.begin if i.op is Op.LOAD_B}
    assert steps == set(range(-(-k // layout.step_columns(k))))


def _waits(code: Code) -> int:
    return sum(instruction.op is Op.WAIT_LOAD for instruction in code)


@pytest.mark.parametrize("n", [1, 16])
def test_launches_overlap_where_they_can(n: int) -> None:
    elements = balanced_map(64, 256, 16)
    plan = fastest_plan("balanced", elements, n, "fp16", H200)
    assert plan.pdl
    assert padded_copy_seconds(plan, H200) == 0.0
    assert not fastest_plan("balanced", elements, n, "fp16", toy_gpu(compute_capability=80)).pdl


@pytest.mark.parametrize(("blocks", "posted"), [(128, True), (200, False)])
def test_set_up_and_first_weights_of_blocks_with_room_lie_under_the_preceding_launch(
    blocks: int, posted: bool
) -> None:
    plan = fastest_plan("balanced", balanced_map(64 * blocks, 256, 16), 1, "fp16", H200)
    launched, (expected,) = plan.programs[0], launch_context(plan, H200).programs
    assert launched.start
    assert not any(i.posted for i in launched.begin)
    assert not expected.start
    assert plan.blocks == blocks
    assert any(i.posted for i in expected.begin if i.op is Op.LOAD_A) == posted


@pytest.mark.parametrize("n", [16, 64])
def test_zeros_take_the_place_of_missing_tokens(n: int) -> None:
    """A product of 16 tokens does what one of 64 does, less the reading of tokens."""
    elements = balanced_map(256, 1024, 16)
    full = simulate(fastest_plan("balanced", elements, 64, "fp16", H200), H200).cycles
    assert simulate(fastest_plan("balanced", elements, n, "fp16", H200), H200).cycles > 0.9 * full


def test_the_closed_form_sees_the_same_waits() -> None:
    few, many = (fastest_plan("balanced", balanced_map(512, 2048, kept), 1, "fp16", H200) for kept in (6, 32))
    waited = estimate(many, H200).cycles - estimate(few, H200).cycles
    assert waited > H200.dram_latency_cycles


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("chunks", [1, 3, 5, 16])
def test_issue_slots_of_the_chunks_written_out(chunks: int, rows: int, dtype: str) -> None:
    """A row's part of a chunk takes 34 slots; its request 17 more, and two for the loads themselves, except
    for the chunks that were requested before B was spread. Reads of B in shared memory issue nothing besides.
    """
    (worker,) = vector_programs(VectorLayout(32, 64, chunks), 2048, rows, dtype)
    spread = next(i for i, instruction in enumerate(worker.begin) if instruction.op is Op.SYNC)
    early = [i for i in worker.begin[:spread] if i.op is Op.LOAD_A]
    slots = sum(i.issue for i in worker.begin[spread + 1 :] if i.op is not Op.WAIT_LOAD)
    assert slots == rows * (34 * chunks + (17 + 2) * (chunks - len(early)))


@pytest.mark.parametrize("copies", [2, 16, 17, 40])
@pytest.mark.parametrize("kept", [2, 8, 24])
def test_a_matrix_of_equal_groups_keeps_the_columns_of_one_group(copies: int, kept: int) -> None:
    group = balanced_map(16, 512, kept)
    bits = np.tile(group.kept_bits, (copies, 1))
    matrix = ElementMap(m=16 * copies, k=512, kept_bits=bits, pattern=group.pattern)
    assert all(choose_rest(matrix, window) == choose_rest(group, window) for window in (16, 64))


def test_rows_of_an_incomplete_group_are_sampled() -> None:
    """Only the last 8 rows keep weights, 8 of 64, each in other columns."""
    mask = np.zeros((24, 64), bool)
    mask[16:] = np.kron(np.eye(8, dtype=bool), np.ones((1, 8), bool))
    matrix, empty = (element_map_from_mask(rows, "unstructured") for rows in (mask, mask[:16]))
    assert choose_rest(matrix, 64) > choose_rest(empty, 64) == 0


@given(windows=st.integers(1, 70), splits=st.sampled_from([1, 2, 4, 8, 16]))
def test_busy_splits_are_counted_step_by_step(windows: int, splits: int) -> None:
    """Split i has the windows from i x steps on, one a step; a sub-partition has every fourth warp."""
    steps = -(-windows // splits)
    busy = [sum(i * steps + t < windows for i in range(splits)) for t in range(steps)]
    fullest = [-(-count * (16 // splits) // 4) * 4 for count in busy]
    found = BalancedLayout(16, 4, np.zeros((16, windows), np.int32)).busy_splits(splits)
    assert found == pytest.approx((sum(busy) / (steps * splits), sum(fullest) / (steps * 16)))


@given(dense=st.lists(st.integers(0, 16), min_size=1, max_size=8), rest=st.integers(0, 8))
def test_words_of_a_record_written_out(dense: list[int], rest: int) -> None:
    """Eight for each pair of dense columns, six for each element that a row keeps besides, and one for the
    places of four pairs."""
    found = BalancedLayout(16, rest, np.array([dense], np.int32)).words[0].tolist()
    for columns, words in zip(dense, found, strict=True):
        pairs = len(range(0, columns, 2))
        assert words == 8 * pairs + 6 * rest + len(range(0, pairs, 4))


@given(data=st.data(), m=st.integers(1, 6), k=st.integers(1, 900))
def test_segments_are_those_that_need_the_fewest_chunks(data, m: int, k: int) -> None:  # type: ignore[no-untyped-def]
    """Segment s of the columns belongs to lane s mod 32, whose elements of a row come four to a chunk."""
    kept = [sorted(data.draw(st.sets(st.integers(0, k - 1), max_size=40))) for _ in range(m)]
    columns = np.array([c for row in kept for c in row], np.int64)
    elements = element_map_from_columns(np.cumsum([0, *map(len, kept)]), columns, k, "unstructured")

    def chunks(segment: int) -> int:
        lanes = [[c // segment % 32 for c in row] for row in kept]
        most = max((row.count(lane) for row in lanes for lane in row), default=0)
        return max(-(-most // 4), 1)

    found = vector_layout(elements)
    fewest = min(chunks(segment) for segment in (256, 128, 64, 32, 16, 8))
    assert found.chunks == chunks(found.segment) == fewest
    assert found.segment == max(s for s in (256, 128, 64, 32, 16, 8) if chunks(s) == fewest)
    assert found.places == len({c // (32 * found.segment) for c in range(k)}) * found.segment


def test_warps_of_a_block_are_split_in_every_even_way() -> None:
    configs = product_of("balanced", balanced_map(512, 1024, 16), 64, "fp16", H200).configs()
    assert len(set(configs)) == len(configs)
    assert {each.splits for each in configs} == {n for n in range(1, WARPS + 1) if WARPS % n == 0}
    assert all(each.rows * each.splits == 16 * WARPS for each in configs)


@pytest.mark.parametrize(
    ("gpu", "dtype", "k"),
    [("v100-sxm2-16gb", "fp16", 25088), ("gtx-1080-ti", "fp32", 25088), ("h200-sxm", "fp16", 65536)],
)
def test_one_token_whose_b_exceeds_shared_memory_is_refused_with_the_sizes(
    gpu: str, dtype: str, k: int
) -> None:
    """25088 columns are those of fc6 of VGG-16. A block holds a 32-bit word for each row of B."""
    spec = load_gpu(gpu)
    columns = np.tile(np.arange(0, k, 8), 64)
    elements = element_map_from_columns(np.arange(65) * (k // 8), columns, k, "unstructured")
    with pytest.raises(PlanDoesNotFit) as refusal:
        fastest_plan("balanced", elements, 1, dtype, spec)
    words = str(refusal.value)
    assert f"{k} rows of B for one token" in words
    assert f"{spec.name}, limit: shared memory" in words
    (needed,) = re.findall(r"need (\d+)", words)
    assert 4 * k <= int(needed) < 4 * (k + 32 * 256) + 128
    assert int(needed) > spec.shared_bytes_per_block == int(re.findall(r"may have (\d+) bytes", words)[0])
    assert "\n" not in words
    assert fastest_plan("balanced", elements, 2, dtype, spec).n == 2


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_only_reads_of_fp32_occupy_the_shared_memory_port(dtype: str) -> None:
    """The products of halves are bound by issue slots: their first read has its latency, and no bytes."""
    layout = matrix_layout(balanced_map(512, 512, 16), 32)
    (worker,) = matrix_programs(layout, 4, 64, dtype, H200, sharers=Sharers(8))
    before = [one for one, other in pairwise(worker.step) if other.op is Op.FMA]
    if dtype == "fp32":
        assert {one.op for one in before} == {Op.SHARED}
        assert min(one.amount for one in before) > 1
    else:
        assert {(one.op, one.amount) for one in before} == {(Op.ISSUE, H200.shared_latency_cycles)}


@pytest.mark.parametrize("n", [1, 16, 64, 100, 128, 136, 191])
def test_zeros_of_a_partial_last_range_pass_the_port_once(n: int) -> None:
    """fp32, four splits of windows of 32: each warp writes its part of the zeros of a step's 128 rows of B.

    Copies fill a single range with zeros themselves, and the last range of a product has them only there.
    """
    layout = matrix_layout(balanced_map(512, 1024, 16), 32)
    (worker,) = matrix_programs(layout, 4, n, "fp32", H200, sharers=Sharers(8))
    zeros = [i for i in worker.step if i.op is Op.SHARED and i.when is When.EDGE]
    missing = sum(token >= n for token in range(-(-n // 64) * 64)) if n > 64 else 0
    assert [WARPS * i.amount for i in zeros] == ([missing * 4 * 128] if missing else [])
    assert not any(i.issue for i in zeros)


@pytest.mark.parametrize("n", [1, 16, 40, 64, 100])
def test_bytes_that_pass_the_port_again_with_copies(n: int) -> None:
    """fp32, 16 rows of 64 tokens. The arriving data of a copy are counted as it arrives; its addresses pass
    the port besides, and for tokens that are not there so do the zeros. Nothing else does for halves.
    """
    layout = matrix_layout(balanced_map(512, 1024, 16), 32)
    programs = [
        matrix_programs(layout, 4, n, dtype, H200, sharers=Sharers(8))[0] for dtype in ("fp32", "fp16")
    ]
    rows = [next(i for i in worker.step if i.op is Op.COPY_B) for worker in programs]
    missing = sum(token >= n for token in range(64))
    assert [i.operand_bytes for i in rows] == [16 * 4 * (64 + missing), 0]
    records = [next(i for i in worker.step if i.op is Op.COPY_A and i.per_k16) for worker in programs]
    assert [i.operand_bytes for i in records] == [records[0].amount, 0]
    # A step has 8 groups of 16 columns, and of its record words of 16 bytes
    assert 8 * records[0].amount == pytest.approx(16 * layout.words.mean(), abs=4)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("index_bytes", [1, 2])
def test_every_form_for_one_token_has_registers_within_its_bound(index_bytes: int, dtype: str) -> None:
    """A block of 16 warps is compiled for at most `MOST_REGISTERS`; three fit on an SM with at most 40."""
    found = {
        (rows, segment): vector_registers(rows, segment, index_bytes, dtype)
        for rows in range(1, MOST_VECTOR_ROWS + 1)
        for segment in (8, 16, 32, 64, 128, 256)
    }
    assert all(FEWEST_REGISTERS <= registers <= MOST_REGISTERS for registers in found.values())
    three = {form for form, registers in found.items() if 3 * 32 * WARPS * registers <= 65536}
    assert three == ({(1, 64)} if (index_bytes, dtype) == (1, "fp16") else set())
