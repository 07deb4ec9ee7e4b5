"""The launches around products of experts, run as they are on an emulated machine, beside NumPy's."""

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels.device.experts.experts import (
    MOST_EXPERTS,
    PASS_THREADS,
    ItemLists,
    expert_records,
    first_tiles,
    gate_rows,
    list_items,
    product_items,
    route_blocks,
    route_tokens,
    sum_experts,
)
from prunecast.kernels.device.pass_launch import PassLaunch
from prunecast.kernels.device.transpose.transpose import (
    Gather,
    Rows,
    transpose_launch,
)
from prunecast.kernels.small_n.cuda.records import SmallOperator
from prunecast.kernels.tile.cuda.operator import TileOperator
from prunecast.plan.expert_items import most_ranges
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE, run_pass_on_cpu
from tests.kernels.cuda.plans import plan_of, ragged_map
from tests.kernels.test_grouped import expert_maps
from tests.kernels.test_grouped import plan_of as grouped_plan

needs_machine = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")
UNTOUCHED = 1 << 30
LOADS = [(0, 1, 5, 9, 300), (40, 0, 0, 64, 3), (0, 0, 0, 0, 16)]


def run(launch, folder, arrays):
    run_pass_on_cpu(launch, arrays, folder, resident=2)


def empty(*shape):
    """Numbers at a multiple of 16 bytes that no launch writes."""
    whole = np.full(int(np.prod(shape)) + 4, UNTOUCHED, np.int32)
    return whole[-whole.ctypes.data % 16 // 4 :][: int(np.prod(shape))].reshape(shape)


def routed(loads, block_n, folder, *, beyond=0):
    """Experts of places with such loads in random order, and what `route_tokens` makes of them."""
    chosen = np.repeat(np.arange(len(loads) + 1), [*loads, beyond]).astype(np.int64)
    np.random.default_rng(0).shuffle(chosen)
    columns = block_n * most_ranges(chosen.size, len(loads), block_n)
    column, source, first = empty(chosen.size), empty(columns), empty(len(loads) + 1)
    counts = empty(route_blocks(chosen.size), len(loads))
    arrays = {"chosen": chosen, "column": column, "source": source, "first": first, "counts": counts}
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    for launch in route_tokens(chosen.size, 2, len(loads), block_n, **pointers):
        run(launch, folder, list(arrays.values()))
    return chosen, column, source, first


@needs_machine
@pytest.mark.parametrize("loads", [*LOADS, (20_000, 1), (300, 2000, 0, 40)])
@pytest.mark.parametrize("block_n", [8, 128])
def test_each_place_gets_a_column_of_its_expert(loads, block_n, cubins):
    chosen, column, source, first = routed(loads, block_n, cubins, beyond=7)
    padded = [-(-load // block_n) * block_n for load in loads]
    assert first.tolist() == [0, *np.cumsum(padded)]
    used, there = int(first[-1]), chosen < len(loads)
    assert np.all(column[~there] == -1)
    assert np.unique(column[there]).size == there.sum()
    assert np.all(first[chosen[there]] <= column[there])
    assert np.all(column[there] < (first[:-1] + np.array(loads))[chosen[there]])
    wanted = np.full(used, -1)
    wanted[column[there]] = np.flatnonzero(there) // 2
    assert np.array_equal(source[:used], wanted)
    assert np.all(source[used:] == UNTOUCHED)
    assert used <= source.size


def test_more_experts_than_threads_are_refused():
    assert MOST_EXPERTS == 1024
    assert route_tokens(8, 2, 1024, 8)
    with pytest.raises(BadInput, match="at most 1024 experts, got 1025"):
        route_tokens(8, 2, 1025, 8)


@pytest.mark.parametrize("block_n", [8, 128])
def test_no_division_among_experts_needs_more_ranges(block_n):
    rng = np.random.default_rng(0)
    for _ in range(200):
        loads = np.bincount(rng.integers(0, 6, rng.integers(1, 400)), minlength=6)
        assert np.sum(-(-loads // block_n)) <= most_ranges(int(loads.sum()), 6, block_n)
    assert most_ranges(6 + 5 * block_n, 6, block_n) == 6 + 5  # one token each, and five whole blocks


def listed(kind, plan, loads, folder):
    """The lists of items that the GPU makes of loads, as arrays by name."""
    places = sum(loads)
    lists, records = ItemLists.of(plan, places), expert_records(kind, plan, places)
    first = np.concatenate(([0], np.cumsum([-(-load // lists.block_n) * lists.block_n for load in loads])))
    arrays = {
        "first": first.astype(np.int32),
        **{name: records.arrays[name] for name in ("first_tile", "heads")},
        **{name: empty(count) for name, (count, _) in records.workspace.items()},
    }
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    pointers["count"] = pointers.pop("splits", pointers.get("count"))
    run(list_items(product_items(lists, **pointers)), folder, list(arrays.values()))
    return lists, arrays


@needs_machine
@pytest.mark.parametrize("loads", LOADS)
def test_lists_are_those_of_the_plan(loads, cubins):
    """The plan of the same loads has the items in the same order, block after block."""
    plan = grouped_plan("stspmm", expert_maps(5, 192, 320), LOADS[0])
    wanted = grouped_plan("stspmm", expert_maps(5, 192, 320), loads)
    lists, arrays = listed(TileOperator, plan, loads, cubins)
    items_of_plan, start = TileOperator.records(wanted).arrays["items"], wanted.work.block_start
    assert wanted.shape == plan.shape
    items = arrays["items"].reshape(lists.lists, lists.room, 4)
    in_turn = np.concatenate(
        [items[i % lists.lists, i // lists.lists][None] for i in range(arrays["splits"][0])]
    )
    of_plan = np.empty_like(items_of_plan)
    for block in range(wanted.blocks):
        own = items_of_plan[start[block] : start[block + 1]]
        of_plan[block :: wanted.blocks] = own
    assert np.array_equal(in_turn[:, [0, 2, 3]], of_plan[:, [0, 2, 3]])
    assert np.array_equal(in_turn[:, 1] & 0x7FFFFFF, of_plan[:, 1] & 0x7FFFFFF)


@needs_machine
def test_blocks_of_few_tokens_have_an_item_or_none(cubins):
    loads = (40, 0, 0, 64, 3)
    plan = grouped_plan("small-n", expert_maps(5, 192, 320), loads)
    lists, arrays = listed(SmallOperator, plan, loads, cubins)
    ranges, places = (arrays[name].reshape(-1, 2) for name in ("ranges", "places"))
    count = plan.item_count
    assert arrays["count"][0] == count
    assert np.array_equal(places[:count, 0], plan.work.tile)
    assert np.array_equal(places[:count, 1], plan.work.token_start)
    assert np.array_equal(ranges[:count, 1], -(-plan.work.k_stop // 16))
    assert np.all(places[count:, 0] == -1)
    assert len(places) == lists.most > count


def test_rows_of_c_are_those_of_one_expert():
    plan = grouped_plan("stspmm", expert_maps(5, 192, 320), LOADS[0])
    rows = expert_records(TileOperator, plan, 400).arrays["rows"]
    assert sorted(rows[rows >= 0].tolist()) == sorted([*range(192)] * 5)
    assert first_tiles(plan).tolist() == [3 * expert for expert in range(6)]


def numbers(shape, seed):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float16)
    whole = np.zeros(values.size + 8, np.float16)
    found = whole[-whole.ctypes.data % 16 // 2 :][: values.size].reshape(shape)
    found[...] = values
    return found


@needs_machine
@pytest.mark.parametrize(("rows", "columns", "used"), [(6, 4104, 4096), (4, 24, 24), (5, 64, 8)])
def test_units_are_written_over_the_gate(rows, columns, used, cubins):
    c, count = numbers((2 * rows, columns), 1), np.array([used], np.int32)
    before = c.astype(np.float64)
    launch = gate_rows(
        "silu",
        "fp16",
        c=c.ctypes.data,
        columns=count.ctypes.data,
        row_bytes=2 * columns,
        rows=rows,
        most=columns,
    )
    run(launch, cubins, [c, count])
    gate, up = before[:rows, :used], before[rows:, :used]
    np.testing.assert_allclose(c[:rows, :used], gate / (1 + np.exp(-gate)) * up, rtol=1e-3, atol=1e-6)
    assert np.array_equal(c[rows:], before[rows:])
    assert np.array_equal(c[:rows, used:], before[:rows, used:])


@needs_machine
@pytest.mark.parametrize("fp32_shares", [False, True])
@pytest.mark.parametrize(("tokens", "per_token", "features"), [(3, 2, 2056), (5, 8, 64), (1, 1, 8)])
def test_outputs_of_a_token_are_summed(tokens, per_token, features, fp32_shares, cubins):
    y, out = numbers((4 * tokens * per_token, features), 1), numbers((tokens, features), 2)
    rng = np.random.default_rng(3)
    column = rng.permutation(len(y))[: tokens * per_token].astype(np.int32)
    missing = rng.random(column.size) < 0.2
    column[missing] = -1
    unread = np.setdiff1d(np.arange(len(y)), column)
    y[unread] = np.nan  # no token's output
    shares = rng.random((tokens, per_token)).astype(np.float32 if fp32_shares else np.float16)
    pointers = {"y": y, "column": column, "shares": shares, "out": out}
    launch = sum_experts(
        tokens,
        "fp16",
        fp32_shares=fp32_shares,
        features=features,
        per_token=per_token,
        y_row_bytes=2 * features,
        out_row_bytes=2 * features,
        **{name: array.ctypes.data for name, array in pointers.items()},
    )
    run(launch, cubins, list(pointers.values()))
    parts = np.where(missing[:, None], 0, y[column].astype(np.float64)).reshape(tokens, per_token, features)
    wanted = (parts * shares[..., None].astype(np.float64)).sum(1)
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-3)


@needs_machine
@pytest.mark.parametrize("used", [24, 64, 136])
def test_tokens_are_gathered_into_columns(used, cubins):
    """Those after the last square of used columns stay as they are."""
    tokens, features, columns = 9, 72, 200
    x, b = numbers((tokens, features), 1).view(np.uint16), numbers((features, columns), 2).view(np.uint16)
    before, count = b.copy(), np.array([used], np.int32)
    source = np.random.default_rng(0).integers(-1, tokens, columns).astype(np.int32)
    source[used:] = UNTOUCHED
    change = Gather(source.ctypes.data, count.ctypes.data)
    given = Rows(x.ctypes.data, 2 * features, tokens, features)
    launch = transpose_launch(given, Rows(b.ctypes.data, 2 * columns, features, columns), change)
    run_pass_on_cpu(launch, [x, b, source, count], cubins)
    wanted = np.where(source[:used] < 0, 0, x[source[:used].clip(0)].T)
    assert np.array_equal(b[:, :used], wanted)
    last = -(-used // 64) * 64
    assert np.array_equal(b[:, last:], before[:, last:])


FORMS = [(128, 256), (256, 128), (128, 192), (128, 128), (64, 256), (64, 128), (128, 64)]


@pytest.mark.parametrize("changes", [{}, {"TOKEN_MAJOR": 1}])
@pytest.mark.parametrize("form", FORMS)
def test_products_of_experts_compile_without_spills(form, changes):
    pytest.importorskip("cuda.bindings.nvrtc")
    plan = plan_of(ragged_map(form[0], shuffled=False), 200, *form)
    assert TileOperator.compile_inputs(plan, changes={"GROUPED": 1, **changes}).build().spill_bytes == 0


@pytest.mark.parametrize("changes", [{"BF16": 1, "ACTIVATION": 3}, {"SHARES_FP32": 1}])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_launches_around_them_compile(arch, changes):
    pytest.importorskip("cuda.bindings.nvrtc")
    none, names = np.zeros(1), ("route_tokens", "gate_rows")
    for entry, threads in zip(names, (MOST_EXPERTS, PASS_THREADS), strict=True):
        defines = tuple({"THREADS": threads, **changes}.items())
        launch = PassLaunch("experts/experts.cu", entry, none, 1, threads, defines=defines)
        assert launch.build(arch).spill_bytes == 0
    gathered = transpose_launch(Rows(0, 128, 8, 64), Rows(0, 16, 64, 8), Gather(0, 0))
    assert gathered.build(arch).spill_bytes == 0
