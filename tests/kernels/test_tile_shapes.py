"""Configs of the tile kernel: they fit the GPU, and have the sizes of the kernel that was measured."""

from dataclasses import replace

import pytest

from prunecast.errors import BadInput
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels.tile.config import TileConfig, weight_bytes, wgmma_use
from prunecast.kernels.tile.configs import sparse_configs, tile_configs
from tests.toy_gpu import toy_gpu

CAPABILITIES = (70, 75, 80, 86, 89, 90, 100, 120)


def config(block_m: int, block_n: int, capability: int = 90, dtype: str = "fp16") -> TileConfig:
    found = tile_configs(toy_gpu(compute_capability=capability), dtype, 10_000)
    return next(v for v in found if v.shape[:2] == (block_m, block_n))


def test_the_wgmma_form_is_the_one_that_was_measured():
    """384 threads, 168 registers, four 48-KB stages, all of 232,448 bytes: the H200 kernel of 2026-11-21."""
    assert config(128, 256).resources == (384, 168, 232_448, 4)
    assert config(128, 256).shape.block_k == 64
    assert config(256, 128).resources == (384, 168, 232_448, 4)


def test_m64n256_reads_80_bytes_a_clock_at_2048_fma_a_clock():
    """64 x 16 and 16 x 256 halves for 64 x 256 x 16 FMA; two warpgroups share 2048 FMA/clk."""
    v = config(128, 256)
    cycles = v.fma_per_warp_per_k16 * 8 / 2048
    assert v.operand_bytes_per_warp_per_k16 * 8 / cycles == 80
    assert v.instructions_per_k16 == 1


def test_a_tall_tile_puts_its_weights_on_the_wide_side():
    """256 rows x 64 tokens as one m64n256 over tokens reads 10 KB; as four m64n64 it would read 16 KB."""
    assert wgmma_use(256, 64, 2, sparse=False) == (64 * 32 + 256 * 32, 256)
    assert wgmma_use(128, 128, 2, sparse=True) == (2 * (64 * 16 + 128 * 32), 128)
    assert wgmma_use(32, 32, 2, sparse=False) is None


def test_2_of_4_weights_take_half_the_values_and_two_bits_for_each():
    assert weight_bytes(128, 64, 2, sparse=False) == 16384
    assert weight_bytes(128, 64, 2, sparse=True) == 8192 + 128 * 32 * 2 // 8


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_registers_of_a_64_x_32_warp_part_allow_two_blocks_where_nothing_is_staged(capability):
    v = config(128, 128, capability)
    expected = {"wgmma": 168, "mma": 128, "registers": 144}
    assert v.resources.registers_per_thread == expected[v.tensor_path]


@pytest.mark.parametrize(
    ("make", "capability"),
    [
        *((tile_configs, capability) for capability in CAPABILITIES),
        *((sparse_configs, capability) for capability in CAPABILITIES if capability >= 80),
    ],
)
def test_every_variant_fits_and_its_parts_tile_the_block(make, capability):
    gpu = toy_gpu(compute_capability=capability)
    for dtype in ("fp16", "bf16", "tf32") if capability >= 80 else ("fp16",):
        found = make(gpu, dtype, 10_000)
        assert len(found) >= 5
        for v in found:
            assert occupancy(v.resources, gpu).blocks_per_sm >= 1
            parts = v.consumer_warps // v.warps_per_part
            assert v.part_m * v.part_n * parts == v.shape.block_m * v.shape.block_n
            assert (
                v.resources.shared_bytes >= v.resources.stages * v.share_bytes_per_k16 * v.shape.block_k / 16
            )


@pytest.mark.parametrize(
    ("capability", "dtype", "style"),
    [
        (70, "fp16", "registers"),
        (75, "fp16", "registers"),
        (80, "fp16", "mma"),
        (89, "tf32", "mma"),
        (90, "bf16", "wgmma"),
        (90, "tf32", "mma"),
        (70, "fp32", "registers"),
        (75, "fp32", "registers"),
        (90, "fp32", "mma"),
        (100, "fp16", "mma"),
        (120, "fp16", "mma"),
    ],
)
def test_each_architecture_has_its_style(capability, dtype, style):
    found = tile_configs(toy_gpu(compute_capability=capability), dtype, 128)
    assert {v.tensor_path for v in found} == {style}


@pytest.mark.parametrize(("height", "tallest"), [(1, 64), (65, 128), (128, 128), (129, 256), (1000, 256)])
def test_no_variant_is_taller_than_the_tiles_need(height, tallest):
    assert max(v.shape.block_m for v in tile_configs(toy_gpu(), "fp16", height)) == tallest


def test_a_smaller_shared_memory_drops_the_variants_that_need_more():
    small = toy_gpu(compute_capability=80, shared_bytes_per_sm=65536, shared_bytes_per_block=65536)
    shapes = {v.shape[:2] for v in tile_configs(small, "fp16", 128)}
    assert (128, 256) not in shapes
    assert (128, 128) in shapes


def test_a_height_below_one_is_refused():
    with pytest.raises(BadInput, match="tile height must be at least 1, got 0"):
        tile_configs(toy_gpu(), "fp16", 0)


@pytest.mark.parametrize("part", [(32, 64), (64, 32), (16, 32), (64, 64)])
def test_reads_of_a_warp_on_cuda_cores_written_out(part):
    """Of the 32 lanes 4 lie along the rows and 8 along the tokens. A lane reads its rows and tokens of each
    of 16 columns four at a time, and every read takes four cycles of a port of 128 bytes.
    """
    part_m, part_n = part
    v = next(c for c in tile_configs(toy_gpu(), "fp32", 10_000))
    v = replace(v, part_m=part_m, part_n=part_n)
    reads = len(range(0, part_m // 4, 4)) + len(range(0, part_n // 8, 4))
    assert v.tensor == "none"
    assert v.operand_bytes_per_warp_per_k16 == 16 * reads * 4 * 128
