"""Packed weights and work records mean what the plan means."""

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels import KernelPlan, run_reference
from prunecast.kernels.device.packing import to_bits
from prunecast.kernels.device.tile_stages import _stage_starts, uncovered_rows
from prunecast.kernels.tile.cuda.operator import TileOperator
from tests.kernels.cuda.emulator import run_images
from tests.kernels.cuda.packed import packed_stages
from tests.kernels.cuda.plans import plan_of, ragged_map


def check(plan: KernelPlan) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((plan.m, plan.k)).astype(np.float16)
    b = rng.standard_normal((plan.k, plan.n))
    packed = packed_stages(TileOperator, plan, a)
    c = run_images(plan, packed, TileOperator.records(plan), b)
    alone = uncovered_rows(plan.tiles)
    assert np.isnan(c[alone]).all()
    c[alone] = 0
    np.testing.assert_allclose(c, run_reference(plan, a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [8, 200, 520])
@pytest.mark.parametrize("form", [(128, 256), (128, 192), (128, 64), (64, 128)])
def test_one_item_per_block(form: tuple[int, int], n: int) -> None:
    check(plan_of(ragged_map(form[0]), n, *form))


@pytest.mark.parametrize("blocks", [1, 7, 20])
def test_split_tiles(blocks: int) -> None:
    plan = plan_of(ragged_map(128), 520, 128, 128, blocks=blocks)
    assert blocks == 1 or plan.work.parts.max() > 1
    check(plan)


def test_a_tile_split_into_many_parts() -> None:
    plan = plan_of(ragged_map(64, k=2000), 64, 64, 128, blocks=12)
    assert plan.work.parts.max() >= 3
    check(plan)


def test_the_null_stage_is_zero_and_names_no_column() -> None:
    tiles = ragged_map(128)
    packed = packed_stages(
        TileOperator, plan_of(tiles, 64, 128, 128), np.full((tiles.m, tiles.k), 7, np.uint16)
    )
    assert not packed.weights[packed.null_stage].any()
    assert (packed.columns[packed.null_stage] == -1).all()
    assert _stage_starts(tiles, 64)[-1] == packed.null_stage == 13


def test_weights_of_another_shape_are_refused() -> None:
    plan = plan_of(ragged_map(128), 64, 128, 128)
    with pytest.raises(BadInput, match="must have the map's shape"):
        packed_stages(TileOperator, plan, np.zeros((plan.m, plan.k + 1), np.uint16))


def test_bf16_bits_are_the_upper_half_of_fp32() -> None:
    values = np.array([[1.0, -2.5, 3.140625]], np.float32)
    assert to_bits(values, "bf16").tolist() == (values.view(np.uint32) >> 16).tolist()
