"""Images of weights as tensors: the bytes that NumPy's packing lays out, and back."""

import numpy as np
import pytest

from prunecast.kernels.device.packing import packed_weights, to_bits
from prunecast.kernels.device.tile_stages import tile_stages
from prunecast.kernels.small_n.cuda.records import k16_slab
from prunecast.kernels.tile.cuda.ffma.operator import core_slab
from prunecast.kernels.tile.cuda.mma.pack import fragment_slab, sparse_fragment_slab
from prunecast.kernels.tile.cuda.work_image import stage_slab
from prunecast.patterns import TileMap, element_map_from_mask, parse_pattern
from prunecast.plan.tile_rows import cut_rows

torch = pytest.importorskip("torch")

from prunecast.torch.weight_layouts import (  # noqa: E402
    CORES,
    FRAGMENTS,
    MMA,
    SPARSE_MMA,
    STAGES,
    Layout,
    covering,
    layout_of,
    pack,
    tiles_from_tensor,
    tiles_to_tensor,
    unpack,
)

M, K = 320, 200


def weights_and_tiles(pattern="tile-wise:128", seed=0):
    torch.manual_seed(seed)
    weight = torch.randn(M, K).half()
    found = parse_pattern(pattern)
    mask = found.prune({"w": weight.abs().float().numpy()}, 0.6)["w"]
    return weight * torch.from_numpy(mask), found.map(mask)


def shuffled(tiles, *, without=5):
    """Rows anywhere, some in no tile, one tile that keeps nothing."""
    rows = np.random.default_rng(1).permutation(tiles.m)[: tiles.m - without]
    row_start = np.append(np.minimum(tiles.row_start[:-1], rows.size), rows.size)
    return TileMap(
        m=tiles.m,
        k=tiles.k,
        row_start=row_start,
        row_index=rows,
        column_start=tiles.column_start,
        column_index=tiles.column_index,
        pattern=tiles.pattern,
    )


def bits(image):
    return image.contiguous().view(torch.int16).numpy().view(np.uint16)


@pytest.mark.parametrize("block_m", [64, 128, 256])
@pytest.mark.parametrize("scattered", [False, True])
def test_stages_are_those_of_the_tile_kernel(block_m, scattered):
    weight, tiles = weights_and_tiles()
    tiles = shuffled(tiles) if scattered else tiles
    kept = weight * torch.from_numpy(tiles.mask())
    image = pack(weight, tiles, Layout(STAGES, block_m))
    stages = tile_stages(cut_rows(tiles, block_m), block_m, 64)
    wanted = packed_weights(to_bits(weight.float().numpy(), "fp16"), tiles, stages, stage_slab(block_m))
    assert np.array_equal(bits(image), wanted)
    assert layout_of(image) == Layout(STAGES, block_m)
    assert torch.equal(unpack(image, tiles), kept)


@pytest.mark.parametrize("block_m", [16, 32, 64])
def test_fragments_are_those_of_the_kernel_of_few_tokens(block_m):
    weight, tiles = weights_and_tiles("tile-wise:64")
    image = pack(weight, tiles, Layout(FRAGMENTS, block_m, 16))
    stages = tile_stages(cut_rows(tiles, block_m), block_m, 16, has_null=False)
    wanted = packed_weights(to_bits(weight.float().numpy(), "fp16"), tiles, stages, k16_slab(block_m))
    assert np.array_equal(bits(image), wanted)
    assert layout_of(image) == Layout(FRAGMENTS, block_m, 16)
    assert torch.equal(unpack(image, tiles), weight)


def test_rows_in_no_tile_get_one_that_keeps_nothing():
    _, tiles = weights_and_tiles()
    whole = covering(shuffled(tiles))
    assert whole.tile_count == tiles.tile_count + 1
    assert np.array_equal(np.sort(whole.row_index), np.arange(M))
    assert whole.kept_per_tile[-1] == 0
    assert covering(whole) is whole


def test_tiles_go_round_through_a_tensor():
    _, tiles = weights_and_tiles()
    assert tiles_from_tensor(tiles_to_tensor(tiles)).fingerprint() == tiles.fingerprint()


@pytest.mark.parametrize("block_m", [32, 64, 128])
@pytest.mark.parametrize(
    ("kind", "slab", "step"),
    [(MMA, fragment_slab, 32), (CORES, lambda block_m, _: core_slab(block_m), 16)],
)
def test_other_kernels_have_layouts_of_their_own(kind, slab, step, block_m):
    weight, tiles = weights_and_tiles()
    tiles = shuffled(tiles)
    if kind == CORES:
        weight = weight.float()
    image = pack(weight, tiles, Layout(kind, block_m, step))
    stages = tile_stages(cut_rows(tiles, block_m), block_m, step)
    dtype = "fp32" if kind == CORES else "fp16"
    wanted = packed_weights(to_bits(weight.float().numpy(), dtype), tiles, stages, slab(block_m, step))
    assert np.array_equal(image.numpy() if kind == CORES else bits(image), wanted)
    assert layout_of(image) == Layout(kind, block_m, step)
    assert torch.equal(unpack(image, tiles), weight * torch.from_numpy(tiles.mask()))


@pytest.mark.parametrize("block_m", [16, 32, 128])
@pytest.mark.parametrize("step", [32, 64])
def test_2_of_4_on_mma_has_metadata_behind_the_fragments(block_m, step):
    weight, tiles = weights_and_tiles()
    order = torch.rand(tiles.m, tiles.k).argsort()
    inside = np.zeros((tiles.m, tiles.k), np.bool_)
    for tile in range(tiles.tile_count):
        rows = tiles.row_index[tiles.row_start[tile] : tiles.row_start[tile + 1]]
        columns = tiles.column_index[tiles.column_start[tile] : tiles.column_start[tile + 1]]
        for first in range(0, columns.size, 4):
            four = columns[first : first + 4]
            best = order.numpy()[np.ix_(rows, four)].argsort(1)[:, :2]
            inside[rows[:, None], four[best]] = True
    weight = torch.where(torch.from_numpy(inside), weight, -0.0)  # a zero is not kept, whatever its sign
    weight[weight == 0] = -0.0
    image = pack(weight, tiles, Layout(SPARSE_MMA, block_m, step))
    assert layout_of(image) == Layout(SPARSE_MMA, block_m, step)
    stages = tile_stages(cut_rows(tiles, block_m), block_m, step)
    words = to_bits(weight.float().numpy(), "fp16")
    kept = element_map_from_mask((weight != 0).numpy(), "2:4")
    wanted = packed_weights(words, tiles, stages, sparse_fragment_slab(block_m, step), kept)
    assert np.array_equal(bits(image), wanted)
    assert torch.equal(unpack(image, tiles), weight)
