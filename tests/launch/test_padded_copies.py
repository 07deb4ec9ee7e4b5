"""Copies to padded rows count where the operator makes them, and only there."""

from dataclasses import replace

import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.launch import launch_context
from prunecast.launch.floor import launch_floor_s, padded_copy_seconds
from prunecast.patterns import dense_tile_map

H200 = load_gpu("h200-sxm")
TILES = dense_tile_map(3072, 768, 128)


@pytest.mark.parametrize(("n", "copied"), [(1, True), (7, True), (8, False), (16, False), (203, True)])
def test_rows_that_are_no_multiple_of_16_bytes_are_copied(n: int, copied: bool) -> None:
    assert (padded_copy_seconds(fastest_plan("stspmm", TILES, n, "fp16", H200), H200) > 0) == copied


def test_a_kernel_that_takes_any_rows_copies_nothing() -> None:
    assert padded_copy_seconds(fastest_plan("small-n", TILES, 1, "fp16", H200), H200) == 0
    a100 = load_gpu("a100-sxm4-80gb")
    assert padded_copy_seconds(fastest_plan("stspmm", TILES, 1, "fp16", a100), a100) == 0


def test_rows_are_copied_even_if_launches_do_not_overlap() -> None:
    plan = replace(fastest_plan("stspmm", TILES, 1, "fp16", H200), pdl=False)
    assert launch_context(plan, H200).copies_rows
    assert not launch_context(plan, H200).prefetches_weights


@pytest.mark.parametrize(("n", "pdl", "overlaps"), [(16, True, True), (16, False, False), (1, True, False)])
def test_launches_overlap_if_the_plan_allows_it_and_no_rows_are_copied(
    n: int, pdl: bool, overlaps: bool
) -> None:
    plan = replace(fastest_plan("stspmm", TILES, n, "fp16", H200), pdl=pdl)
    assert launch_context(plan, H200).pdl is overlaps


@pytest.mark.parametrize(
    ("m", "k", "n", "measured_us"),
    [
        (768, 768, 50, 5.57),
        (4096, 4096, 100, 6.14),
        (4096, 4096, 197, 11.90),
        (3072, 768, 1001, 22.29),
        (4096, 4096, 1002, 23.81),
        (4096, 4096, 1500, 19.35),
        (768, 768, 4321, 34.36),
        (4096, 4096, 4321, 170.48),
    ],
)
def test_copies_take_what_they_were_measured_to(m: int, k: int, n: int, measured_us: float) -> None:
    """The operator with copies less the same on padded rows, H200, own measurement of 2026-11-22
    (`benchmarks/measured/h200-sxm-misaligned-rows-2026-11-22.json`)."""
    plan = fastest_plan("stspmm", dense_tile_map(m, k, 128), n, "fp16", H200)
    overlapped = H200.graph_launch_s - H200.overlapped_launch_s
    assert 1e6 * (padded_copy_seconds(plan, H200) + overlapped) == pytest.approx(measured_us, rel=0.15)


def test_the_three_launches_do_not_overlap() -> None:
    """3072 x 768: 4.6 to 5.2 us more for 1 token than for 16 on an H200, own measurement of 2026-11-21."""
    one, sixteen = (
        launch_floor_s(launch_context(fastest_plan("stspmm", TILES, n, "fp16", H200), H200)) for n in (1, 16)
    )
    assert one - sixteen == pytest.approx(4.9e-6, abs=0.6e-6)
