"""Images of weights as tensors: the bytes that NumPy's packing lays out, and back."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels.device.tile_stages import to_bits
from prunecast.kernels.small_n.cuda.records import pack_small
from prunecast.kernels.tile.cuda.work_image import pack_weights
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.tile_rows import cut_rows

torch = pytest.importorskip("torch")

from prunecast.torch.images import (  # noqa: E402
    FRAGMENTS,
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
    wanted = pack_weights(cut_rows(tiles, block_m), to_bits(weight.float().numpy(), "fp16"), block_m)
    assert np.array_equal(bits(image), wanted.weights)
    assert layout_of(image) == Layout(STAGES, block_m)
    assert torch.equal(unpack(image, tiles), kept)


@pytest.mark.parametrize("block_m", [16, 32, 64])
def test_fragments_are_those_of_the_kernel_of_few_tokens(block_m):
    weight, tiles = weights_and_tiles("tile-wise:64")
    image = pack(weight, tiles, Layout(FRAGMENTS, block_m))
    wanted = pack_small(cut_rows(tiles, block_m), to_bits(weight.float().numpy(), "fp16"), block_m)
    assert np.array_equal(bits(image), wanted.weights)
    assert layout_of(image) == Layout(FRAGMENTS, block_m)
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


def test_lists_of_a_launch_are_those_of_the_packed_weights():
    from prunecast.torch.cuda.tiles import columns_by_thread, lists_of
    from prunecast.torch.images import slabs_of

    weight, tiles = weights_and_tiles("tile-wise:64")
    words = to_bits(weight.float().numpy(), "fp16")
    stages, packed = slabs_of(tiles, Layout(STAGES, 64)), pack_weights(tiles, words, 64)
    assert np.array_equal(columns_by_thread(stages.columns), packed.columns)
    assert np.array_equal(stages.rows, packed.rows)
    assert len(stages.columns) == packed.null_stage
    plan = fastest_plan("small-n", tiles, 8, "fp16", load_gpu("h200-sxm"))
    small, lists = pack_small(plan.tiles, words, plan.shape.block_m), lists_of(plan)
    for name in ("columns", "rows", "group_start"):
        assert np.array_equal(getattr(lists, name), getattr(small, name))
