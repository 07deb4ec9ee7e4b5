"""fp8 products as engines call them, and the physics of launches in tiles."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import gpu_names, load_gpu
from prunecast.kernels.libraries.scaled.call import (
    FORM_OF,
    FORMS,
    SCALES,
    quantise_passes,
    scaled_costs,
    scaled_product,
    tile_of,
)
from prunecast.kernels.libraries.tiled import Operands, Rates, Tile, TiledWork, operand_reads, tiled_time

H100 = load_gpu("h100-sxm")
RATES = Rates(0.9, 0.7, 1.2, 0.9, 0.6, 3.0, 500.0)
TILE = Tile(rows=128, tokens=128, k=64, warps=8)
WORK = TiledWork(
    tiles=528.0,
    tile=TILE,
    reads=Operands(2.0, 1.0),
    k=4096,
    dtype="bf16",
    dram_bytes=1e8,
    is_persistent=True,
)
sizes = st.integers(1, 20_000)


@given(sizes, sizes, sizes, st.sampled_from(SCALES))
def test_parts_add_up_and_the_product_is_not_below_its_bounds(m, k, n, scales):
    call = scaled_product(m, k, n, H100, scales=scales)
    assert call.seconds == pytest.approx(sum(call.parts.values()))
    assert call.seconds_low < call.seconds < call.seconds_high
    assert call.parts["product"] > k * (m + n) / H100.dram_peak_bytes_per_s
    fastest = H100.tensor_fp8_fma_per_clk_per_sm * H100.sm_count * H100.max_clock_hz
    assert call.parts["product"] > m * k * n / fastest


def test_each_way_to_scale_quantises_more():
    seconds = [
        scaled_product(4096, 4096, 512, H100, scales=scales).seconds
        for scales in ("fused", "token", "tensor")
    ]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 3


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_quantising_moves_x_once_or_twice(k, n):
    numbers = scaled_costs(90)
    (rounding,) = quantise_passes(k, n, "static", numbers)
    maximum, again = quantise_passes(k, n, "tensor", numbers)
    assert again == rounding
    assert rounding.copied_bytes * numbers["rounding_share"] == pytest.approx(3.0 * k * n)
    assert maximum.copied_bytes * numbers["maximum_share"] == pytest.approx(2.0 * k * n)
    assert quantise_passes(k, n, "fused", numbers) == ()


def test_every_gpu_with_fp8_has_a_tile_for_every_size():
    for name in gpu_names():
        gpu = load_gpu(name)
        if gpu.tensor_fp8_fma_per_clk_per_sm:
            for form in FORMS:
                for m, k, n in ((1, 1, 1), (1281, 128, 17), (128, 6144, 8192), (10**6, 10**5, 10**6)):
                    assert min(tile_of(form, m, k, n, gpu)) >= 1


@pytest.mark.parametrize(
    ("m", "k", "n", "tile"),
    [
        (10_000, 6144, 16, (64, 16, 256)),
        (1280, 6144, 17, (64, 16, 256)),
        (1281, 6144, 17, (64, 64, 256)),
        (1280, 6144, 64, (64, 16, 256)),
        (1281, 6144, 64, (64, 64, 256)),
        (1280, 6144, 65, (128, 64, 128)),
        (1281, 6144, 128, (128, 64, 128)),
        (1281, 6144, 129, (128, 128, 128)),
        (128, 6144, 8191, (128, 128, 128)),
        (128, 6144, 8192, (128, 256, 128)),
        (128, 6143, 8192, (128, 128, 128)),
    ],
)
def test_tiles_of_cutlass_are_those_of_its_dispatch(m, k, n, tile):
    """vLLM 0.24, scaled_mm for compute capability 9.0: by tokens, then rows, and by K for 8192 tokens."""
    found = tile_of("cutlass", m, k, n, H100)
    assert (found.rows, found.tokens, found.k) == tile


@pytest.mark.parametrize(("n", "is_slower"), [(127, False), (128, False), (129, True), (130, False)])
def test_an_odd_number_of_tokens_above_a_tile_is_slower(n, is_slower):
    numbers, name = dict(scaled_costs(90).values), FORMS["cutlass"]
    even, odd = (
        scaled_product(4096, 4096, n, H100, form="cutlass", costs=numbers | {f"{name}_odd_tokens": factor})
        for factor in (1.0, 1.5)
    )
    assert odd.parts["product"] == pytest.approx((1.5 if is_slower else 1.0) * even.parts["product"])


@pytest.mark.parametrize("name", ["a100-sxm4-80gb", "t4"])
def test_a_gpu_without_fp8_is_refused(name):
    with pytest.raises(BadInput, match="dtype fp8 needs fp8 tensor cores"):
        scaled_product(128, 128, 128, load_gpu(name))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"scales": "row"}, "scales"), ({"form": "triton"}, "form of fp8")],
)
def test_unknown_names_are_refused(wrong, words):
    with pytest.raises(BadInput, match=words):
        scaled_product(128, 128, 128, H100, **wrong)
    with pytest.raises(BadInput, match="at least 1"):
        scaled_product(128, 0, 128, H100)


def test_forms_of_all_scales_exist():
    assert set(FORM_OF) == set(SCALES)
    assert set(FORM_OF.values()) <= set(FORMS)


def test_the_slowest_resource_bounds_a_launch_that_overlaps_perfectly():
    alone = tiled_time(WORK, RATES._replace(overlap=200.0), H100)
    added = tiled_time(WORK, RATES._replace(overlap=1.0), H100)
    assert alone.seconds < tiled_time(WORK, RATES, H100).seconds < added.seconds
    slower = tiled_time(WORK._replace(dram_bytes=1e10), RATES._replace(overlap=200.0), H100)
    assert slower.bound == "dram"
    assert slower.seconds == pytest.approx(1e10 / (0.9 * H100.dram_peak_bytes_per_s), rel=1e-3)


def test_whole_rounds_of_tiles_need_equal_time():
    rates = RATES._replace(overlap=200.0, l2_share=1e3, start_cycles=0.0)
    own = WORK._replace(dram_bytes=0.0)

    def seconds(tiles, **changed):
        return tiled_time(
            own._replace(tiles=tiles, **changed),
            rates,
            replace(H100, clock_activity=(10.0, 20.0, 30.0, 40.0, 50.0, 60.0)),
        ).seconds

    assert seconds(1.0) == pytest.approx(seconds(132.0))
    assert seconds(133.0) == pytest.approx(2 * seconds(132.0))
    assert seconds(132.0) < seconds(133.0, is_persistent=False) < seconds(133.0)


def test_narrow_steps_read_memory_slowly():
    rates = RATES._replace(overlap=200.0)
    wide, narrow = (
        tiled_time(WORK._replace(tile=TILE._replace(k=k), dram_bytes=1e10), rates, H100).seconds
        for k in (64, 32)
    )
    assert narrow == pytest.approx(wide / 0.6, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "tile", "swaps", "reads"),
    [
        ("h100-sxm", Tile(128, 128, 64, 8), False, (2.0, 1.0)),
        ("h100-sxm", Tile(64, 16, 128, 4), False, (1.0, 4.0)),
        ("h100-sxm", Tile(64, 16, 256, 8), True, (1.0, 1.0)),
        ("b200", Tile(128, 128, 64, 8), False, (1.0, 1.0)),
        ("a100-sxm4-80gb", Tile(64, 64, 32, 4), False, (2.0, 2.0)),
        ("a100-sxm4-80gb", Tile(32, 16, 64, 4), False, (1.0, 4.0)),
        ("rtx-pro-6000", Tile(128, 128, 64, 8), False, (2.0, 4.0)),
    ],
)
def test_operands_are_read_by_each_group_of_warps(gpu, tile, swaps, reads):
    assert operand_reads(tile, load_gpu(gpu), swaps=swaps) == Operands(*reads)
