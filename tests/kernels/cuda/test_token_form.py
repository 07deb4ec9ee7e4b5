"""The gate of the token form: compiled without a GPU to what the plan says, alone and in clusters of two."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.kernels import KernelPlan, run_reference
from prunecast.kernels.device.tile_stages import uncovered_rows
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.cuda.operator import TileOperator, _check_form
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.plan.assignment import assign_hardware, assign_stream_k
from tests.kernels.cuda.emulator import run_images
from tests.kernels.cuda.packed import packed_stages
from tests.kernels.cuda.plans import GPU, plan_of, ragged_map
from tests.kernels.cuda.sass import opcodes

FORM = (256, 128)


def plan(cluster: int, dtype: str = "fp16", n: int = 200, clusters: int = 0) -> KernelPlan:
    """One item per block, or equal shares of all k-steps for so many clusters."""
    tiles = ragged_map(FORM[0])
    variant = next(v for v in wgmma_configs(GPU, dtype, "wgmma") if v.shape[:2] == FORM)
    items = items_of(tiles, variant, n, GPU, cluster=cluster)
    assigned = assign_stream_k(items, clusters, 64) if clusters else assign_hardware(items)
    spread = spread_over_clusters(assigned, cluster, FORM[1])
    return tile_plan("stspmm", tiles, n, variant, spread, GPU, b_access="gather", cluster=cluster)


@pytest.mark.parametrize("clusters", [0, 1, 5, 9])
@pytest.mark.parametrize(("cluster", "n"), [(1, 8), (1, 200), (2, 200), (2, 520)])
def test_the_images_mean_what_the_plan_means(cluster: int, n: int, clusters: int) -> None:
    p = plan(cluster, n=n if cluster == 1 else n // 256 * 256 + 136, clusters=clusters)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((p.m, p.k)).astype(np.float16)
    b = rng.standard_normal((p.k, p.n))
    packed = packed_stages(TileOperator, p, a)
    c = run_images(p, packed, TileOperator.records(p), b)
    alone = uncovered_rows(p.tiles)
    assert np.isnan(c[alone]).all()
    c[alone] = 0
    np.testing.assert_allclose(c, run_reference(p, a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.compile
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("cluster", [1, 2])
def test_it_has_the_resources_of_its_plan(cluster: int, dtype: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    p = plan(cluster, dtype)
    kernel = TileOperator.compile_inputs(p).build()  # threads and shared memory are checked by the source
    assert kernel.registers == p.resources.registers_per_thread == 168
    assert kernel.spill_bytes == 0
    assert kernel.shared_bytes == 0


@pytest.mark.compile
@pytest.mark.parametrize(
    ("activation", "bias"), [("none", True), ("relu", True), ("gelu", True), ("gelu", False)]
)
@pytest.mark.parametrize("cluster", [1, 2])
def test_bias_and_activation_do_not_spill(cluster: int, activation: str, bias: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    p = plan(cluster, "bf16")
    assert TileOperator.compile_inputs(p, activation=activation, bias=bias).build().spill_bytes == 0


@pytest.mark.compile
@pytest.mark.parametrize("cluster", [1, 2])
def test_every_multiplication_takes_all_rows(cluster: int) -> None:
    """Two whole steps of 4 groups of 16 columns, and a last one of a loop and one more; see consumer."""
    pytest.importorskip("cuda.bindings.nvrtc")
    p = plan(cluster)
    found = opcodes(TileOperator.compile_inputs(p).build().cubin)
    assert found["HGMMA.64x256x16.F32"] == 4 + 4 + 2
    assert sum(n for name, n in found.items() if name.startswith("HGMMA")) == 4 + 4 + 2
    assert found["LDL"] == found["STL"] == 0


@pytest.mark.compile
def test_only_a_cluster_copies_to_its_neighbour_and_without_a_fence_on_the_way() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    alone, together = (opcodes(TileOperator.compile_inputs(plan(c)).build().cubin) for c in (1, 2))
    assert alone["UBLKCP.S.G.MULTICAST"] == 0
    assert together["UBLKCP.S.G.MULTICAST"] > 0
    # One for each of the two meetings of the cluster, none where slots are given back
    assert together["MEMBAR.ALL.GPU"] - alone["MEMBAR.ALL.GPU"] == 2


def test_other_forms_run_without_clusters() -> None:
    p = plan_of(ragged_map(128), 512, 128, 256)
    pairs = replace(p, cluster=1)
    _check_form(pairs)
    with pytest.raises(BadInput, match="run alone"):
        _check_form(_clustered(128, 256))


def test_clusters_have_one_or_two_blocks() -> None:
    with pytest.raises(BadInput, match="clusters have 1 or 2 blocks"):
        _check_form(_clustered(256, 128, cluster=4))


def _clustered(block_m: int, block_n: int, cluster: int = 2) -> KernelPlan:
    tiles, n = ragged_map(block_m), block_n * cluster
    variant = next(v for v in wgmma_configs(GPU, "fp16", "wgmma") if v.shape[:2] == (block_m, block_n))
    items = items_of(tiles, variant, n, GPU, cluster=cluster)
    spread = spread_over_clusters(assign_hardware(items), cluster, block_n)
    return tile_plan("stspmm", tiles, n, variant, spread, GPU, b_access="gather", cluster=cluster)
