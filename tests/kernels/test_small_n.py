"""Plans of the kernel for few tokens: what they mean, what they take, what they refuse."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.launch_floor import launch_floor_s
from prunecast.kernels.plan import Schedule
from prunecast.kernels.reference import run_reference
from prunecast.kernels.small_n import choose_small_n, plan_small_n
from prunecast.kernels.small_n_forms import SmallForm
from prunecast.kernels.stspmm import plan_stspmm
from prunecast.kernels.zero_rows import zero_row_count
from prunecast.models import estimate
from prunecast.patterns import TileMap, parse_pattern
from prunecast.simulator import simulate
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

GPU = load_gpu("h200-sxm")


@pytest.mark.parametrize(("n", "form"), [(1, None), (16, None), (64, None), (100, SmallForm(32, 32, 4))])
def test_every_tile_and_token_is_multiplied_once(n: int, form: SmallForm | None) -> None:
    tiles = tiles_keeping([0, 1, 17, 300], height=70, k=320)
    plan = plan_small_n(tiles, n, "fp16", toy_gpu(), form=form)
    rng = np.random.default_rng(n)
    a = rng.integers(-4, 5, (tiles.m, tiles.k)).astype(np.float64)
    b = rng.integers(-4, 5, (tiles.k, n)).astype(np.float64)
    np.testing.assert_array_equal(run_reference(plan, a, b), (a * tiles.mask()) @ b)


def test_blocks_are_all_there_at_once_and_the_heaviest_come_first() -> None:
    tiles = tiles_keeping([1024] * 86, height=128, k=4096)
    plan = plan_small_n(tiles, 16, "fp16", GPU)
    chosen = choose_small_n(tiles, 16, "fp16", GPU)[0]
    assert plan.item_count == chosen.blocks == 172
    assert plan.blocks <= chosen.blocks_per_sm * GPU.sm_count
    kept = tiles_keeping([16, 512, 64], height=64, k=512)
    assert (np.diff(plan_small_n(kept, 16, "fp16", GPU).work.k_stop) <= 0).all()


def test_blocks_of_overlapping_launches_fill_an_sm_before_the_next() -> None:
    """64 blocks of four to eight warps took as long as 172 of them, on an H200, 2026-11-21 (0008)."""
    tiles = tiles_keeping([1024] * 32, height=128, k=4096)
    plan = plan_small_n(tiles, 1, "fp16", GPU, form=SmallForm(64, 8, 4, 4))
    blocks_of_sm = simulate(plan, GPU).sm_items
    assert plan.item_count == 64
    assert sorted(blocks_of_sm[blocks_of_sm > 0]) == [4, *[5] * 12]
    other = plan_small_n(tiles, 1, "fp16", toy_gpu(compute_capability=80), form=SmallForm(64, 8, 4, 4))
    assert other.blocks == other.item_count


def test_where_blocks_lie_is_no_part_of_what_is_launched() -> None:
    """Records name the launch: one block for each item."""
    tiles = tiles_keeping([1024] * 32, height=128, k=4096)
    plan = plan_small_n(tiles, 1, "fp16", GPU, form=SmallForm(64, 8, 4, 4))
    start = np.arange(plan.item_count + 1)
    work = plan.work._replace(block_start=start)
    as_launched = replace(plan, work=work, schedule=Schedule.HARDWARE, blocks=plan.item_count)
    assert plan.blocks > as_launched.blocks
    assert plan.fingerprint() == as_launched.fingerprint()
    assert plan.fingerprint() == replace(as_launched, starts_early=False).fingerprint()
    assert plan.fingerprint() != replace(plan, starts_early=False).fingerprint()


def test_the_start_of_blocks_lies_under_the_launch_before() -> None:
    """More blocks than half of the SMs: with fewer, any kernel whose launches overlap starts early."""
    plan = plan_small_n(tiles_keeping([64] * 80, height=64, k=64), 1, "fp16", GPU)
    late = replace(plan, starts_early=False)
    assert plan.item_count > GPU.sm_count / 2
    start_s = GPU.block_start_cycles / GPU.clock_burst_hz[0]
    assert launch_floor_s(late, GPU, "graph") - launch_floor_s(plan, GPU, "graph") == pytest.approx(start_s)
    assert launch_floor_s(late, GPU, "stream") == launch_floor_s(plan, GPU, "stream")


@pytest.mark.parametrize(
    ("m", "k", "n", "kept", "us"),
    [(3072, 768, 1, 77, 2.39), (4096, 4096, 32, 410, 4.25), (4096, 11008, 32, 5504, 17.24)],
)
def test_cases_measured_on_an_h200(m: int, k: int, n: int, kept: int, us: float) -> None:
    """Recorded 2026-11-21, of those marked fit; equal tiles. Blocks of 64 rows and one token are said to be
    15 % slower than they are (0008).
    """
    plan = plan_small_n(tiles_keeping([kept] * (m // 128), height=128, k=k), n, "fp16", GPU)
    assert simulate(plan, GPU).seconds * 1e6 == pytest.approx(us, rel=0.12)


def test_few_tokens_are_predicted_faster_than_by_the_kernel_for_many() -> None:
    """11008 x 4096 at 75 %, 16 tokens: 23 MB of weights are 5.6 us; the other kernel took 11 (0008)."""
    tiles = tiles_keeping([1024] * 86, height=128, k=4096)
    plan = plan_small_n(tiles, 16, "fp16", GPU)
    for seconds in (simulate(plan, GPU).seconds, estimate(plan, GPU).seconds):
        assert 5.6e-6 < seconds < 11e-6


@pytest.mark.parametrize(
    ("m", "k", "kept", "n", "fastest"),
    [
        (11008, 4096, 1024, 1, ((64, 8, 4, 8), (64, 8, 2, 16))),
        (11008, 4096, 1024, 16, ((64, 16, 4, 8),)),
        (11008, 4096, 1024, 64, ((64, 64, 4, 4),)),
        (4096, 4096, 1024, 1, ((64, 8, 4, 16),)),
        (4096, 4096, 1024, 16, ((64, 16, 2, 16), (16, 16, 2, 16))),
        (4096, 4096, 1024, 64, ((32, 64, 2, 16),)),
    ],
)
def test_the_form_chosen_is_one_that_was_fast(m: int, k: int, kept: int, n: int, fastest: tuple) -> None:
    """Within 5 % of the fastest of 22 forms on an H200, 2026-11-21 (0008)."""
    tiles = tiles_keeping([kept] * (m // 128), height=128, k=k)
    assert tuple(choose_small_n(tiles, n, "fp16", GPU)[0].form) in fastest


def test_more_tokens_are_left_to_other_kernels() -> None:
    tiles = tiles_keeping([16], height=64, k=64)
    with pytest.raises(BadInput, match="at most 64 tokens, got 65"):
        plan_small_n(tiles, 65, "fp16", GPU)


def test_rows_in_no_tile_cost_no_second_launch() -> None:
    mask = np.zeros((128, 64), np.bool_)
    mask[:64, :16] = True
    tiles = parse_pattern("tile-wise-2d:64").map(mask)
    assert isinstance(tiles, TileMap)
    assert zero_row_count(plan_small_n(tiles, 16, "fp16", GPU)) == 0
    assert zero_row_count(plan_stspmm(tiles, 16, "fp16", GPU)) == 64


@pytest.mark.parametrize(
    ("dtype", "capability", "told"), [("fp32", 90, "fp16 or bf16"), ("fp16", 75, "compute capability 8.0")]
)
def test_what_it_cannot_run_is_refused(dtype: str, capability: int, told: str) -> None:
    tiles = tiles_keeping([16], height=64, k=64)
    with pytest.raises(BadInput, match=told):
        plan_small_n(tiles, 16, dtype, toy_gpu(compute_capability=capability))
