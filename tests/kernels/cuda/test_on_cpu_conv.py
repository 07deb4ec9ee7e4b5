"""Convolutions through the tile kernels, run as they are on an emulated machine."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels import ConvGrid, ConvShape, KernelPlan
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.assignment import assign_stream_k
from tests.kernels.cuda.mma import mma_plans
from tests.kernels.cuda.on_cpu.mma_run import run_mma
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import Operands, Rows
from tests.kernels.cuda.on_cpu.tile_run import run_tiles
from tests.kernels.cuda.plans import GPU, plan_of
from tests.naive.convolution import convolve, images_of, in_border, planes_of_images

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def grid_of(
    *,
    height: int = 5,
    size: int = 3,
    stride: int = 1,
    border: int = 1,
    second: int = 0,
    out: int | None = None,
    batch: int = 8,
) -> ConvGrid:
    conv = ConvShape(
        channels=20,
        height=height,
        width=7,
        kernel_h=size,
        kernel_w=size,
        stride=stride,
        padding=size // 2,
        batch=batch,
    )
    return ConvGrid(conv=conv, border=border, second=second, border_out=out)


def tiles_of(grid: ConvGrid, m: int, height: int) -> TileMap:
    pattern = parse_pattern(f"tile-wise:{height}")
    importance = np.random.default_rng(1).random((m, grid.k))
    return pattern.map(pattern.prune({"w": importance}, 0.6)["w"])


def operands_of(
    plan: KernelPlan, grid: ConvGrid, images: np.ndarray, second: np.ndarray, weights: np.ndarray
) -> Operands:
    """The inputs, and C as the planes of an output that holds no numbers yet."""
    output = grid.output(plan.m)
    source = np.ascontiguousarray(planes_of_images(grid.source, images), np.float16)
    out = np.full((output.pixels, grid.conv.batch), np.nan, np.float16)
    step = output.plane * grid.conv.batch * 2
    planes = np.lib.stride_tricks.as_strided(out[output.first :], (plan.m, plan.n), (step, 2))
    bias = np.random.default_rng(3).standard_normal(plan.m).astype(np.float32)
    added = np.ascontiguousarray(planes_of_images(grid.output(grid.second), second), np.float16)
    return Operands(
        a=weights,
        b=Rows(whole=source, matrix=source),
        c=Rows(whole=out, matrix=planes),
        bias=bias,
        second=Rows(whole=added, matrix=added),
    )


def check(plan: KernelPlan, grid: ConvGrid, folder: Path, run) -> None:
    """All of the output: pixels by definition, and zeros everywhere else."""
    plan, random, conv = replace(plan, source=grid), np.random.default_rng(2), grid.conv
    images = random.standard_normal((conv.channels, conv.height, conv.width, conv.batch)).astype(np.float16)
    weights = random.standard_normal((plan.m, plan.k)).astype(np.float16).astype(np.float32)
    second = random.standard_normal((grid.second, conv.height_out, conv.width_out, conv.batch))
    second = second.astype(np.float16)
    operands = operands_of(plan, grid, images, second, weights)
    run(plan, operands, folder, activation="relu")
    kept = np.where(plan.tiles.mask(), weights, 0.0)
    filters = kept[:, : conv.k].reshape(plan.m, conv.channels, conv.kernel_h, conv.kernel_w)
    sums = convolve(filters, images, conv.stride, conv.padding) + operands.bias[:, None, None, None]
    sums += convolve(kept[:, conv.k :, None, None], second, 1, 0) if grid.second else 0
    c = operands.c.matrix.copy()
    np.testing.assert_allclose(images_of(grid, c), np.maximum(sums, 0), rtol=2e-3, atol=2e-3)
    operands.c.matrix[:, ~in_border(grid)] = 0
    assert not operands.c.whole.any()  # which is true of values that are not numbers


@pytest.mark.parametrize("form", [(128, 256), (128, 192), (128, 128), (128, 64), (64, 256), (64, 128)])
def test_every_form_of_wgmma(form: tuple[int, int], cubins: Path) -> None:
    grid = grid_of()
    plan = plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, *form, blocks=3)
    check(plan, grid, cubins, run_tiles)


@pytest.mark.parametrize(("form", "size"), [((128, 256), 3), ((128, 64), 1), ((64, 128), 3), ((256, 128), 1)])
def test_a_second_input_in_every_gather(form: tuple[int, int], size: int, cubins: Path) -> None:
    grid = grid_of(size=size, second=24)
    check(plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, *form, blocks=3), grid, cubins, run_tiles)


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "t4"])
def test_a_second_input_without_wgmma(gpu: str, cubins: Path) -> None:
    grid = grid_of(second=24)
    plan = mma_plans.plan_of(tiles_of(grid, 256, 128), grid.n, (128, 128), blocks=3, gpu=gpu)
    check(plan, grid, cubins, run_mma)


@pytest.mark.parametrize("cluster", [1, 2])
def test_tokens_as_the_first_operand(cluster: int, cubins: Path) -> None:
    grid = grid_of(height=7)
    tiles = tiles_of(grid, 512, 256)
    config = next(v for v in wgmma_configs(GPU, "fp16", "wgmma") if v.shape[:2] == (256, 128))
    assigned = assign_stream_k(items_of(tiles, config, grid.n, GPU, cluster=cluster), 3, 64)
    work = spread_over_clusters(assigned, cluster, 128)
    check(
        tile_plan("stspmm", tiles, grid.n, config, work, GPU, b_access="gather", cluster=cluster),
        grid,
        cubins,
        run_tiles,
    )


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "t4"])
@pytest.mark.parametrize("form", [(128, 128), (64, 256), (16, 256)])
def test_without_wgmma(form: tuple[int, int], gpu: str, cubins: Path) -> None:
    grid = grid_of()
    plan = mma_plans.plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, form, blocks=3, gpu=gpu)
    check(plan, grid, cubins, run_mma)


@pytest.mark.parametrize(
    ("size", "stride", "border"),
    [(1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 2, 1), (3, 2, 1), (5, 1, 2), (5, 3, 2), (3, 1, 2)],
)
def test_filters_strides_and_borders(size: int, stride: int, border: int, cubins: Path) -> None:
    grid = grid_of(size=size, stride=stride, border=border)
    check(plan_of(tiles_of(grid, 128, 128), grid.n, 128, 128, blocks=2), grid, cubins, run_tiles)


@pytest.mark.parametrize(("size", "border"), [(3, 1), (3, 2)])
def test_pixels_of_more_images_than_a_chunk_has(size: int, border: int, cubins: Path) -> None:
    """The kernel copies the pixels of eight images at once, and a pixel of 24 in three chunks."""
    grid = grid_of(height=4, size=size, border=border, batch=24)
    check(plan_of(tiles_of(grid, 128, 128), grid.n, 128, 128, blocks=2), grid, cubins, run_tiles)


def test_the_output_has_another_border(cubins: Path) -> None:
    grid = grid_of(height=9, size=7, stride=2, border=3, out=1)
    check(plan_of(tiles_of(grid, 64, 64), grid.n, 64, 128, blocks=2), grid, cubins, run_tiles)
    with pytest.raises(BadInput, match="input and output have one border, got 3 and 1"):
        grid_of(size=7, border=3, out=1)


@pytest.mark.parametrize("form", [(128, 256), (128, 64), (64, 128)])
def test_strides_in_every_gather_of_wgmma(form: tuple[int, int], cubins: Path) -> None:
    grid = grid_of(height=9, stride=2)
    check(plan_of(tiles_of(grid, 2 * form[0], form[0]), grid.n, *form, blocks=3), grid, cubins, run_tiles)


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "t4"])
def test_strides_without_wgmma(gpu: str, cubins: Path) -> None:
    grid = grid_of(height=9, stride=2)
    plan = mma_plans.plan_of(tiles_of(grid, 256, 128), grid.n, (128, 128), blocks=3, gpu=gpu)
    check(plan, grid, cubins, run_mma)


def test_strides_with_tokens_as_the_first_operand(cubins: Path) -> None:
    grid = grid_of(height=9, stride=2)
    check(plan_of(tiles_of(grid, 512, 256), grid.n, 256, 128, blocks=3), grid, cubins, run_tiles)
