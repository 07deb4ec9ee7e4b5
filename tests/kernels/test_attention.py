"""Attention of libraries: tiles counted one by one, laws of its time, tables, and bad input."""

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import gpu_names, load_gpu
from prunecast.hardware.costs import load_costs
from prunecast.kernels.libraries.attention.call import attention_call
from prunecast.kernels.libraries.attention.choose import kernel_for
from prunecast.kernels.libraries.attention.math_path import math_parts
from prunecast.kernels.libraries.attention.seconds import (
    COSTS,
    attention_clock_hz,
    costs_of,
    dram_bytes,
    parts_of,
    sm_cycles,
    step_cycles,
)
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.attention.work import CallWork, tiles_of, work_of
from prunecast.kernels.libraries.library_tables import table

H100 = load_gpu("h100-sxm")
KERNELS = sorted(
    {(row["kernel"], phase) for row in table("attention_costs") for phase in row["phases"].split()}
)


@st.composite
def shapes(draw: st.DrawFn, causal: bool | None = None) -> Attention:
    is_causal = draw(st.booleans()) if causal is None else causal
    queries = draw(st.sampled_from((1, 2, 13, 64, 100, 300)))
    keys = queries + draw(st.sampled_from((0, 1, 63, 500))) if is_causal else draw(st.integers(1, 400))
    key_heads = draw(st.sampled_from((1, 2, 3)))
    return Attention(
        draw(st.sampled_from((1, 3, 40))),
        queries,
        keys,
        key_heads * draw(st.sampled_from((1, 4, 8))),
        key_heads,
        draw(st.sampled_from((64, 80, 128, 256))),
        is_causal,
        draw(st.sampled_from((0, 0, 7, 128))) if is_causal else 0,
    )


def steps_one_by_one(shape: Attention, kernel: str) -> list[int]:
    """Key tiles of each query tile of one head that hold a key which a row of the tile attends to."""
    tiles = tiles_of(kernel, shape, H100)
    group = shape.heads // shape.key_heads if tiles.packs else 1
    window = shape.window if shape.window < shape.keys else 0
    seen: dict[int, set[int]] = {}
    for row in range(shape.queries * group):
        query = row // group + shape.cached
        for key in range(shape.keys):
            attends = not shape.is_causal or (key <= query and (not window or key >= query - window))
            if attends:
                seen.setdefault(row // tiles.rows, set()).add(key // tiles.keys)
    return [len(each) for each in seen.values()]


@given(shapes())
def test_steps_are_those_that_hold_an_attended_key(shape: Attention) -> None:
    kernel = kernel_for(shape, H100, "engine")
    work = work_of(kernel, shape, H100)
    counted = steps_one_by_one(shape, kernel)
    heads = work.ctas / work.splits / len(counted)
    assert heads == shape.sequences * (
        shape.key_heads if tiles_of(kernel, shape, H100).packs else shape.heads
    )
    assert work.steps == heads * sum(counted)
    assert work.longest == -(-max(counted) // work.splits)


@given(shapes(), st.sampled_from(("engine", "torch")), st.booleans())
def test_parts_add_up_and_bounds_enclose_the_time(shape: Attention, runtime: str, cold: bool) -> None:
    call = attention_call(shape, H100, runtime=runtime, cold=cold)
    assert all(seconds > 0.0 for seconds in call.parts.values())
    assert call.seconds_low < call.seconds < call.seconds_high
    assert call.seconds >= attention_call(shape, H100, runtime=runtime, cold=False).seconds


@given(shapes(causal=True), st.sampled_from(("sequences", "keys", "key_heads")))
def test_more_work_needs_no_less_time(shape: Attention, name: str) -> None:
    """Twice the sequences, the cache, or the heads. With a window, a longer cache only moves tile borders."""
    shape = shape._replace(window=0) if name == "keys" else shape
    more = shape._replace(**{name: 2 * getattr(shape, name)})
    if name == "key_heads":
        more = more._replace(heads=2 * shape.heads)
    kernel = kernel_for(shape, H100, "engine")
    first, second = (work_of(kernel, each, H100) for each in (shape, more))
    assert second.steps >= first.steps
    assert second.key_bytes >= first.key_bytes
    costs = costs_of(kernel, shape.phase, 90)
    seconds = [float(parts_of(work, costs, H100, 1.7e9).seconds) for work in (first, second)]
    # Splitting keys among idle SMs, and the last wave, may make larger calls a little faster
    assert seconds[1] > 0.75 * seconds[0]


@given(st.lists(shapes(causal=True), min_size=1, max_size=6))
def test_many_calls_at_once_are_the_calls_one_by_one(many: list[Attention]) -> None:
    kernel, costs = "FlashAttention 3", costs_of("FlashAttention 3", "prefill", 90)
    works = [work_of(kernel, each, H100) for each in many]
    together = CallWork(*(np.array(column) for column in zip(*works, strict=True)))
    clock_hz = np.array([attention_clock_hz(int(work.width), H100, "burst") for work in works])
    found = parts_of(together, costs, H100, clock_hz).seconds
    for seconds, work, hz in zip(found, works, clock_hz, strict=True):
        assert seconds == pytest.approx(float(parts_of(work, costs, H100, hz).seconds))


def work_of_ctas(ctas: float, mean: float, longest: float) -> CallWork:
    """Half-used tiles of 64 rows, 128 keys and 128 features."""
    counts = {"ctas": ctas, "steps": ctas * mean, "longest": longest, "rows": 32.0, "tile_rows": 64.0}
    no_bytes = {name: 0.0 for name in CallWork._fields if name.endswith("_bytes")}
    return CallWork(**counts, **no_bytes, tile_keys=128.0, width=128.0, splits=1.0, ragged=0.0)


def test_cycles_of_a_step_are_its_products_exponentials_and_loads() -> None:
    work, none = work_of_ctas(132.0, 6.0, 6.0), dict.fromkeys((*COSTS, "is_mma"), 0.0)
    scores, rate = 64 * 128, H100.tensor_bf16_fma_per_clk_per_sm
    for name, factor, cycles in (
        ("step_clk", 100.0, 100.0),
        ("product_ratio", 1.5, 1.5 * scores * 2 * 128 / rate),
        ("exponential_ratio", 3.0, 3.0 * scores / 16),
        ("load_ratio", 0.5, 0.5 * 2 * 128 * 128 * 2 / H100.l2_port_bytes_per_clk_per_sm),
    ):
        assert step_cycles(work, {**none, name: factor}, H100) == pytest.approx(cycles)


def test_ragged_keys_prolong_steps_by_their_ratio() -> None:
    kernel, costs = "cuDNN", {**costs_of("cuDNN", "encoder", 90), "ragged_ratio": 1.25}
    whole, ragged = (work_of(kernel, Attention(4, n, n, 16, 16, 64, False), H100) for n in (1536, 1500))
    assert (whole.ragged, ragged.ragged, whole.steps) == (0.0, 1.0, ragged.steps)
    assert step_cycles(ragged, costs, H100) == pytest.approx(1.25 * step_cycles(whole, costs, H100))


def test_unequal_ctas_and_a_last_wave_that_is_partly_empty_cost_their_shares() -> None:
    """2.5 waves; a tile of 50 + 8 / 2 x 128 / 64 = 58 cycles, steps of 100, 6 on average, at most 9."""
    none = dict.fromkeys((*COSTS, "is_mma"), 0.0)
    costs = {**none, "tile_clk": 50.0, "tile_row_clk": 8.0, "step_clk": 100.0}
    work = work_of_ctas(2.5 * H100.sm_count, 6.0, 9.0)
    assert sm_cycles(work, costs, H100) == pytest.approx(2.5 * 658)
    assert sm_cycles(work, {**costs, "tail_ratio": 0.4}, H100) == pytest.approx(2.7 * 658)
    assert sm_cycles(work, {**costs, "unequal_ratio": 0.5}, H100) == pytest.approx(2.5 * 658 + 0.5 * 3 * 100)
    both = (1645.0**6 + (2.0 * 958) ** 6) ** (1 / 6)
    assert sm_cycles(work, {**costs, "lone_ratio": 2.0}, H100) == pytest.approx(both)


@pytest.mark.parametrize(("over_l2", "cold", "in_dram"), [(0, False, 0.0), (0, True, 3e6), (1, False, None)])
def test_operands_that_exceed_l2_come_from_dram_and_others_only_if_cold(
    over_l2: int, cold: bool, in_dram: float | None
) -> None:
    """In a cold cache, only keys that this pass did not write: 3 MB here."""
    keys = 5e6
    queries = H100.l2_usable_bytes - keys + over_l2
    work = work_of_ctas(132.0, 1.0, 1.0)._replace(query_bytes=queries, key_bytes=keys, cached_key_bytes=3e6)
    assert dram_bytes(work, H100, cold) == (queries + keys if in_dram is None else in_dram)


@pytest.mark.parametrize(
    ("changes", "seen", "new", "cached"),
    [
        ({}, 10, 3, 7),
        ({"window": 4}, 7, 3, 4),  # the first of three tokens sees four before it
        ({"window": 99}, 10, 3, 7),
        ({"queries": 10}, 10, 10, 0),
        ({"queries": 10, "is_causal": False}, 10, 0, 0),  # an encoder: keys of this very pass
        ({"is_causal": False}, 10, 0, 10),  # keys of another sequence
    ],
)
def test_bytes_of_a_call_by_hand(changes: dict[str, int], seen: int, new: int, cached: int) -> None:
    """2 sequences, 8 heads and 4 of keys with 64 features of 2 bytes: read x and keys, and write y."""
    shape = Attention(2, 3, 10, 8, 4, 64, is_causal=True)._replace(**changes)
    work = work_of(kernel_for(shape, H100, "engine"), shape, H100)
    key_and_value = 2 * 2 * 4 * 64 * 2
    assert work.query_bytes == 2 * shape.queries * 8 * 64 * 2 * 2
    assert (work.key_bytes, work.new_key_bytes, work.cached_key_bytes) == (
        seen * key_and_value,
        new * key_and_value,
        cached * key_and_value,
    )


def test_two_products_need_two_operations_for_each_pair_of_tokens_and_feature() -> None:
    shape = Attention(2, 3, 10, 8, 4, 64, is_causal=False)
    assert shape.flops == 2 * (2 * 2 * 8 * 3 * 10 * 64)


def test_parts_of_split_keys_write_a_sum_in_fp32_for_each_feature_and_read_it_again() -> None:
    work = work_of("FlashAttention 3", Attention(1, 1, 32768, 32, 8, 128, is_causal=True), H100)
    assert work.partial_bytes == 2 * work.splits * 32 * 128 * 4


def test_a_window_reads_no_more_than_all_keys() -> None:
    whole = Attention(8, 1, 8192, 32, 8, 128, is_causal=True)
    windowed = whole._replace(window=128)
    assert (
        work_of("FlashAttention 3", windowed, H100).key_bytes
        < 0.02 * work_of("FlashAttention 3", whole, H100).key_bytes
    )
    assert attention_call(windowed, H100).seconds < attention_call(whole, H100).seconds


def test_few_tiles_split_their_keys_and_many_do_not() -> None:
    few = work_of("FlashAttention 3", Attention(1, 1, 32768, 32, 8, 128, is_causal=True), H100)
    many = work_of("FlashAttention 3", Attention(64, 1, 32768, 32, 8, 128, is_causal=True), H100)
    assert (few.splits, many.splits) == (132 // 8, 1)
    assert few.partial_bytes > 0.0 == many.partial_bytes


def test_the_replay_of_a_graph_counts_only_in_published_tables() -> None:
    shape = Attention(1, 1, 64, 8, 8, 128, is_causal=True)
    work, costs = work_of("FlashAttention 3", shape, H100), costs_of("FlashAttention 3", "decode", 90)
    inside, alone = (parts_of(work, costs, H100, 1.7e9, replayed=each) for each in (False, True))
    assert float(alone.seconds - inside.seconds) == pytest.approx(costs["replay_s"])


@pytest.mark.parametrize("name", gpu_names())
@pytest.mark.parametrize("runtime", ["engine", "torch"])
def test_every_gpu_has_a_kernel_for_each_phase(name: str, runtime: str) -> None:
    gpu = load_gpu(name)
    for queries, keys, causal in ((300, 300, True), (1, 300, True), (300, 300, False)):
        for mask in (False, True):
            shape = Attention(2, queries, keys, 8, 4, 128, causal, has_mask=mask)
            call = attention_call(shape, gpu, runtime=runtime)
            assert np.isfinite(call.seconds)
            assert call.bound in ("tensor", "exponentials", "latency", "dram", "l2", "fp32")


def test_more_sms_bandwidth_or_tensor_rate_are_no_slower() -> None:
    for queries, keys in ((4096, 4096), (1, 16384)):
        shape = Attention(16, queries, keys, 32, 8, 128, is_causal=True)
        h20, h200 = (attention_call(shape, load_gpu(name)).seconds for name in ("h20", "h200-sxm"))
        h100 = attention_call(shape, H100).seconds
        assert h200 <= h100
        assert h200 < h20


def test_torch_takes_its_unfused_path_only_where_no_fused_kernel_serves() -> None:
    shape = Attention(32, 128, 128, 12, 12, 64, is_causal=False)
    assert kernel_for(shape, load_gpu("h200-sxm"), "torch") == "cuDNN"
    assert kernel_for(shape._replace(has_mask=True), load_gpu("h200-sxm"), "torch") == "cuDNN with mask"
    assert kernel_for(shape, load_gpu("a100-sxm4-80gb"), "torch") == "FlashAttention 2 of torch"
    math = attention_call(shape, load_gpu("gtx-1080-ti"), runtime="torch")
    assert math.kernel == "math"
    assert math.seconds > 5 * attention_call(shape, load_gpu("t4"), runtime="torch").seconds


def test_the_unfused_path_scores_every_pair_of_query_and_key() -> None:
    """3 sequences of 128 queries and 512 keys, 8 heads of 64 features; the mask hides no pair."""
    gpu, pairs, features = H100, 3 * 8 * 128 * 512, 8 * 64
    costs = load_costs("prunecast.kernels.libraries.attention", gpu.compute_capability)
    flop_per_s = 2 * gpu.fp32_fma_per_clk_per_sm * gpu.sm_count * gpu.clock_burst_hz[0]
    shape = Attention(3, 128, 512, 8, 2, 64, is_causal=False)
    parts = math_parts(shape, gpu)
    kernels = costs["math_launches"]
    operand_elements = 2 * 3 * features * (128 + 512)
    passes, mask_passes = costs["math_score_passes"], costs["math_mask_passes"]
    copy_s = 1.0 / gpu.dram_copy_bytes_per_s
    assert parts["launch"] == pytest.approx(kernels * (gpu.graph_launch_s + costs["math_start_s"]))
    assert parts["products"] == pytest.approx(2 * 2 * pairs * 64 / flop_per_s / costs["math_product_share"])
    assert parts["scores"] == pytest.approx(passes * 4 * pairs * copy_s)
    assert parts["operands"] == pytest.approx(costs["math_operand_passes"] * 2 * operand_elements * copy_s)
    for masked in (shape._replace(has_mask=True), shape._replace(is_causal=True)):
        expected = {**parts, "scores": pytest.approx((passes + mask_passes) * 4 * pairs * copy_s)}
        assert math_parts(masked, gpu) == expected
    # one new token attends to all keys: torch builds no causal mask
    token = shape._replace(queries=1)
    assert math_parts(token._replace(is_causal=True), gpu) == math_parts(token, gpu)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_heads": 3}, "3 key heads do not divide 8 heads"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"queries": 90}, "at least as many keys as queries"),
        ({"head_width": 640}, "head widths up to 512 on h100-sxm, got 640"),
    ],
)
def test_what_is_no_attention_is_one_line(changes: dict[str, int], message: str) -> None:
    shape = Attention(1, 64, 64, 8, 8, 128, is_causal=True)._replace(**changes)
    with pytest.raises(BadInput, match=message) as error:
        attention_call(shape, H100)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["attention_tiles", "attention_choices", "attention_costs"])
def test_rows_say_where_they_come_from(name: str) -> None:
    for row in table(name):
        assert row["source"]
        assert row["kind"] in ("vendor", "guess", "fitted", "definition")
        assert datetime.date.fromisoformat(row["date"])


def test_every_kernel_has_tiles_and_costs() -> None:
    named = {
        (kernel, phase)
        for row in table("attention_choices")
        for phase in row["phases"].split()
        for kernel in row["kernels"].split("|")
        if kernel != "math"
    }
    tiles = {(row["kernel"], phase) for row in table("attention_tiles") for phase in row["phases"].split()}
    assert {pair for pair in named if pair in tiles} <= set(KERNELS)
    assert {kernel for kernel, _ in named} <= {kernel for kernel, _ in tiles}
