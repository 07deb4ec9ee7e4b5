"""The tile kernel with operands in fp8, which scales C by row and by token, on an emulated machine."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scipy.special import expit

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.cuda.fp8 import Fp8TileOperator
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap
from prunecast.plan.assignment import assign_hardware, assign_stream_k
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import rows_of
from tests.kernels.cuda.on_cpu.tile_run import run_fp8
from tests.naive.quantise import quantised

GPU = load_gpu("h200-sxm")
RUNS = (0, 1, 4, 5, 22)
"""Runs of 32 columns that the tiles keep."""
emulated = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def run_map(k: int = 736, seed: int = 0, *, shuffled: bool = False) -> TileMap:
    """A tile for every count of `RUNS`, the last one shorter."""
    rng = np.random.default_rng(seed)
    heights = np.full(len(RUNS), 256)
    heights[-1] = 144
    m = int(heights.sum())
    groups = rng.permutation(m // 16) if shuffled else np.arange(m // 16)
    columns = [
        (32 * np.sort(rng.choice(k // 32, runs, replace=False))[:, None] + np.arange(32)).ravel()
        for runs in RUNS
    ]
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=(16 * groups[:, None] + np.arange(16)).ravel(),
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern="block:256x32",
    )


def fp8_plan(tiles: TileMap, n: int, *, cluster: int = 1, lists: int = 0) -> KernelPlan:
    """One item per block, or equal shares of all k-steps for so many clusters."""
    config = next(iter(wgmma_configs(GPU, "fp8", "wgmma")))
    items = items_of(tiles, config, n, GPU, cluster=cluster)
    assigned = assign_stream_k(items, lists, config.shape.block_k) if lists else assign_hardware(items)
    spread = spread_over_clusters(assigned, cluster, config.shape.block_n)
    return tile_plan("stspmm", tiles, n, config, spread, GPU, b_access="gather", cluster=cluster)


def check(
    plan: KernelPlan,
    folder: Path,
    *,
    output: str = "bf16",
    bias: bool = False,
    residual: bool = False,
    gated: bool = False,
    **choices,
) -> None:
    """C of all tiles against float64, from operands that fp8 represents; nothing around C is touched."""
    rng = np.random.default_rng(1)
    bits, scales = quantised(rng.standard_normal((plan.m, plan.k)))
    x, token_scales = quantised(rng.standard_normal((plan.n, plan.k)))
    dtype = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[output]
    rows = plan.m // 2 if gated else plan.m
    before = rng.standard_normal((plan.n, rows)) if residual else np.full((plan.n, rows), np.nan)
    c = rows_of(before.astype(dtype), apart=-(-rows // 8) * 8)
    held, added = (
        c.matrix.astype(np.float64),
        rng.standard_normal(plan.m).astype(np.float32) if bias else None,
    )
    run_fp8(
        plan,
        bits,
        scales,
        x,
        token_scales,
        added,
        c,
        folder,
        output=output,
        residual=residual,
        gated=gated,
        **choices,
    )
    assert np.isnan(c.whole.astype(np.float32)[c.outside()]).all(), "something around C was written"

    def numbers(of: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return of.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale[:, None].astype(np.float64)

    a, b = numbers(bits, scales) * plan.tiles.mask(), numbers(x, token_scales)
    wanted, size = b @ a.T, np.abs(b) @ np.abs(a).T
    wanted += 0.0 if added is None else added
    ulp = {"fp16": 2.0**-11, "bf16": 2.0**-8}[output]
    bound = ulp * np.abs(wanted) + 2.0**-20 * (size + np.abs(wanted)) + 2.0**-24
    if gated:
        gate, up = np.arange(plan.m).reshape(-1, 2, 8).transpose(1, 0, 2).reshape(2, -1)
        unit, off = wanted[:, gate] * expit(wanted[:, gate]), 2.0**-19 * (size + np.abs(wanted))
        bound = 1.1 * off[:, gate] * np.abs(wanted[:, up]) + np.abs(unit) * off[:, up]
        bound += 2.0**-19 * np.abs(wanted[:, gate] * wanted[:, up])
        wanted = unit * wanted[:, up]
        bound += ulp * np.abs(wanted) + 2.0**-24
    if residual:
        wanted = wanted + held
        bound += ulp * np.abs(wanted)
    excess = np.abs(c.matrix.astype(np.float64) - wanted) / bound
    assert (excess <= 1.0).all(), f"not what fp8 gives: {excess.max()}"


@emulated
@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_one_item_per_block(landing: str, cubins: Path, *, shuffled: bool) -> None:
    check(fp8_plan(run_map(shuffled=shuffled), 203), cubins, landing=landing)


@emulated
@pytest.mark.parametrize("landing", ["oldest", "newest"])
def test_split_tiles_in_clusters(landing: str, cubins: Path) -> None:
    plan = fp8_plan(run_map(), 387, cluster=2, lists=3)
    assert plan.work.parts.max() > 1
    check(plan, cubins, output="fp16", bias=True, landing=landing, backwards=True)


@emulated
def test_bias_and_residual(cubins: Path) -> None:
    check(fp8_plan(run_map(), 136, lists=3), cubins, bias=True, residual=True)


@emulated
@pytest.mark.parametrize("shuffled", [False, True])
def test_gated_units(cubins: Path, *, shuffled: bool) -> None:
    check(fp8_plan(run_map(shuffled=shuffled), 136, lists=3), cubins, bias=shuffled, gated=True)


WRONG = {
    "runs of a stage are exchanged": {"runs.x, token": "runs.y, token"},
    "scales of the two tokens are exchanged": {"ending.token_scales[half]": "ending.token_scales[1 - half]"},
    "all tokens have the scale of the first eight": {
        "min(ending.token + lane / 4 + 8 * i,": "min(ending.token + lane / 4,"
    },
    "the copy engine's tokens are not waited for": {"+ 1 * TOKEN_BYTES": ""},
}


@emulated
@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    plan, changes = fp8_plan(run_map(), 136), WRONG[wrong]
    assert_noticed(
        lambda seed: check(plan, cubins, changes=changes, seed=seed),
        "not what|a race|on their way",
        range(3),
    )


def test_tiles_must_keep_whole_runs() -> None:
    tiles = run_map()
    columns = np.array(tiles.column_index)
    columns[31] += 32 - 1  # of the first run the last column lies 31 further
    names = ("m", "k", "row_start", "row_index", "column_start", "pattern")
    other = TileMap(column_index=columns, **{name: getattr(tiles, name) for name in names})
    assert (Fp8TileOperator.records(fp8_plan(tiles, 128)).arrays["columns"] % 32 == 0).all()
    with pytest.raises(BadInput, match="runs of 32"):
        Fp8TileOperator.compile_inputs(fp8_plan(other, 128))


@pytest.mark.compile
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize(("bias", "change"), [(False, ""), (True, "RESIDUAL"), (True, "GLU"), (False, "GLU")])
def test_it_has_the_resources_of_its_plan(cluster: int, bias: bool, change: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    plan = fp8_plan(run_map(), 256, cluster=cluster)
    kernel = Fp8TileOperator.compile_inputs(
        plan,
        bias=bias,
        activation="silu" if change == "GLU" else "none",
        changes={change: 1} if change else {},
    ).build()
    assert kernel.registers == plan.resources.registers_per_thread == 168
    assert kernel.spill_bytes == 0
