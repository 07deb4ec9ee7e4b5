"""Which token ranges are walked together: by what L2 keeps while all tiles take their turn."""

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels.tile.configs import tile_configs
from prunecast.kernels.tile.tile_plan import items_of, plan_tile_wise
from prunecast.plan.tile_rows import cut_rows, kept_per_piece
from tests.kernels.layouts import tiles_keeping
from tests.toy_gpu import toy_gpu

H200 = load_gpu("h200-sxm")
MIB = 1 << 20


def together(tiles, n, gpu, shape=(128, 256), cluster=1):
    """Token ranges of the first tile that follow one another."""
    config = next(v for v in tile_configs(gpu, "fp16", 10_000) if v.shape[:2] == shape)
    items = items_of(cut_rows(tiles, shape[0]), config, n, gpu, cluster=cluster)
    other = np.flatnonzero(items.tile != items.tile[0])
    return int(other[0]) if other.size else items.tile.size


@pytest.mark.parametrize(
    ("m", "k", "n", "density", "expected"),
    [
        (11008, 4096, 2048, 0.5, 4),  # 5.9 % faster with 4
        (11008, 4096, 4096, 0.5, 4),  # 4.1
        (8192, 8192, 4096, 0.5, 4),  # 4.2
        (8192, 8192, 4096, 0.25, 4),  # 3.5
        (5120, 5120, 4096, 0.5, 4),  # 0.6
        (4096, 11008, 4096, 0.5, 4),  # 0.7
        (4096, 11008, 4096, 0.25, 4),  # 0.7
        (11008, 4096, 4096, 0.25, 1),  # 0.8
        (4096, 4096, 4096, 0.5, 1),  # 0.5 slower
        (11008, 4096, 4096, 0.1, 1),  # 2.2 slower
        (4096, 11008, 16384, 0.5, 4),  # 2.0
        (11008, 4096, 512, 0.5, 2),  # 0.7, and there are two
        (4096, 11008, 4096, 0.1, 1),  # 0.1
        (4096, 11008, 16384, 0.1, 1),  # 3.0 slower
        (4096, 4096, 16384, 0.5, 1),  # 0.2 slower
        (768, 3072, 16384, 0.5, 1),  # 0.9 slower
    ],
)
def test_layers_walk_as_it_was_faster_on_an_h200(m, k, n, density, expected):
    """`benchmarks/measured/h200-sxm-walks-2026-11-21.json`."""
    tiles = tiles_keeping([round(density * k)] * (m // 128), height=128, k=k)
    assert together(tiles, n, H200) == expected


def test_a_round_is_weights_and_the_b_and_c_of_what_runs_meanwhile():
    """Four SMs and 8 tiles: half a range at a time, so a round is one range of 256 tokens."""
    tiles = tiles_keeping([640] * 8, height=128, k=640)
    weights, b, c = 2 * 8 * 128 * 640, 2 * 640 * 256, 2 * 8 * 128 * 256
    for kept, expected in ((weights + b + c, 1), (weights + b + c - 1, 4)):
        gpu = toy_gpu(compute_capability=90, l2_usable_bytes=kept)
        assert together(tiles, 2048, gpu) == expected


def test_pieces_keep_what_the_cut_map_keeps():
    tiles = tiles_keeping([5, 0, 70, 33], height=100, k=80, m=350)
    for height in (16, 64, 100, 128):
        assert kept_per_piece(tiles, height).tolist() == cut_rows(tiles, height).kept_per_tile.tolist()


@pytest.mark.parametrize(
    ("gpu", "dtype", "together"),
    [("h200-sxm", "fp16", 1), ("v100-sxm2-16gb", "fp16", 1), ("gtx-1080-ti", "fp32", 4)],
)
def test_the_hardware_starts_heavy_tiles_of_a_group_of_token_ranges_first(gpu, dtype, together):
    """Measured plans, of Hopper, keep the order of tiles."""
    kept, spec = [16, 96, 48, 64], load_gpu(gpu)
    tiles = tiles_keeping(kept, height=64, k=128)
    config = tile_configs(spec, dtype, 64)[0]
    plan = plan_tile_wise(tiles, 8 * config.shape.block_n, dtype, spec, config)
    lengths = (plan.work.k_stop - plan.work.k_start).reshape(-1, len(kept) * together)
    expected = kept if spec.has_wgmma else sorted(kept, reverse=True)
    assert lengths.tolist() == [np.repeat(expected, together).tolist()] * (8 // together)
