"""Gated units, activate(gate) * up, made by the kernels from interleaved rows, on an emulated machine."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.configs import SmallConfig, _block_widths
from prunecast.kernels.small_n.kernel import _plan_small_n
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap
from prunecast.plan.assignment import assign_stream_k
from prunecast.validation.tolerance import error_bound
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import Operands, Rows, check_around, make_operands, rows_of
from tests.kernels.cuda.on_cpu.small_run import run_small
from tests.kernels.cuda.on_cpu.tile_run import run_tiles
from tests.kernels.cuda.plans import GPU, KEPT, plan_of

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")

STEEPEST = {"silu": 1.1, "gelu-tanh": 1.13}
"""Largest slope: an error of the gate grows by no more."""


def gated_map(block_m: int, k: int = 300, *, shuffled: bool) -> TileMap:
    """A tile for every count of `KEPT`, in groups of 16 rows; the last tile is shorter where it can be."""
    rng = np.random.default_rng(0)
    heights = np.full(len(KEPT), block_m)
    heights[-1] = max(block_m // 32 * 16, 16)
    groups = rng.permutation(heights.sum() // 16) if shuffled else np.arange(heights.sum() // 16)
    columns = [np.sort(rng.choice(k, min(kept, k), replace=False)) for kept in KEPT]
    return TileMap(
        m=int(heights.sum()),
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=(16 * groups[:, None] + np.arange(16)).ravel(),
        column_start=np.concatenate(([0], np.cumsum([c.size for c in columns]))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{block_m}",
    )


def activated(x: np.ndarray, activation: str) -> np.ndarray:
    if activation == "silu":
        return x * expit(x)
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def excess(plan: KernelPlan, operands: Operands, c: Rows, activation: str) -> np.ndarray:
    """|error| over its bound, (M / 2, N)."""
    mask = plan.tiles.mask()
    a, b = operands.a.astype(np.float64) * mask, operands.b.matrix.astype(np.float64)
    b[~np.isfinite(b)] = 0.0
    sums, size = a @ b, np.abs(a) @ np.abs(b)
    if operands.bias is not None:
        sums, size = sums + operands.bias[:, None], size + np.abs(operands.bias)[:, None]
    halves = np.arange(plan.m).reshape(-1, 2, 8)
    gate, up = (halves[:, i].ravel() for i in range(2))
    products = int(mask.sum(axis=1).max(initial=1)) + 2
    off = error_bound(np.zeros_like(sums), size, products, "fp32")
    unit = activated(sums[gate], activation)
    wanted = unit * sums[up]
    bound = error_bound(wanted, np.abs(wanted), 1, plan.dtype)
    bound = bound + 2 * (STEEPEST[activation] * off[gate] * np.abs(sums[up]) + np.abs(unit) * off[up])
    bound = bound + 2.0**-20 * (np.abs(sums[gate]) * np.abs(sums[up]))  # exp, division and products in fp32
    error = np.abs(c.matrix.astype(np.float64) - wanted)
    return np.where(np.isfinite(error), error, np.inf) / bound


def check(
    plan: KernelPlan,
    folder: Path,
    *,
    activation: str = "silu",
    bias: bool = False,
    gates: int = 1,
    **choices,
) -> None:
    """Every element within its rounding error, nothing around C touched; gates are `gates` times as large."""
    operands = make_operands(plan, bias=bias, align=8)
    operands.a[np.arange(plan.m) // 8 % 2 == 0] *= gates
    padded = -(-plan.n // 8) * 8
    c = rows_of(np.full((plan.m // 2, plan.n), np.nan, operands.c.matrix.dtype), apart=padded)
    run = run_small if plan.kernel == "small-n" else run_tiles
    run(plan, operands, folder, activation=activation, gated=c, **choices)
    check_around(c, plan.n if plan.kernel == "small-n" else padded)
    worst = excess(plan, operands, c, activation)
    assert worst.max() <= 1.0, f"not what was wanted: {(worst > 1).sum()} of {worst.size}, {worst.max():.3g}"


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_long_lists_and_split_tiles(shuffled: bool, landing: str, cubins: Path) -> None:
    plan = plan_of(gated_map(128, 700, shuffled=shuffled), 520, 128, 256, blocks=5)
    assert plan.work.parts.max() == 2
    check(plan, cubins, landing=landing)


@pytest.mark.parametrize(
    ("form", "n", "dtype"),
    [
        ((128, 192), 208, "bf16"),
        ((128, 128), 72, "fp16"),
        ((128, 64), 64, "fp16"),
        ((64, 256), 200, "bf16"),
        ((64, 128), 136, "fp16"),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_every_form(form: tuple[int, int], n: int, dtype: str, bias: bool, cubins: Path) -> None:
    plan = plan_of(gated_map(form[0], shuffled=False), n, *form, dtype=dtype)
    check(plan, cubins, activation="gelu-tanh" if bias else "silu", bias=bias, backwards=True)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_form_with_tokens_as_rows_in_clusters(shuffled: bool, bias: bool, cubins: Path) -> None:
    tiles = gated_map(256, 700, shuffled=shuffled)
    config = next(v for v in wgmma_configs(GPU, "fp16", "wgmma") if v.shape[:2] == (256, 128))
    items = items_of(tiles, config, 392, GPU, cluster=2)
    spread = spread_over_clusters(assign_stream_k(items, 2, 64), 2, 128)
    plan = tile_plan("stspmm", tiles, 392, config, spread, GPU, b_access="gather", cluster=2)
    check(plan, cubins, bias=bias)


@pytest.mark.parametrize("n", [1, 8, 16, 64])
@pytest.mark.parametrize(("dtype", "block_m"), [("fp16", 64), ("bf16", 16)])
@pytest.mark.parametrize("bias", [False, True])
def test_few_tokens(n: int, dtype: str, block_m: int, bias: bool, cubins: Path) -> None:
    config = SmallConfig(block_m, _block_widths(n)[0], 4)
    plan = _plan_small_n(gated_map(block_m, shuffled=True), n, dtype, load_gpu("h200-sxm"), config=config)
    check(plan, cubins, bias=bias)


UNCUT = {f"fminf(exponent({each}), 62.0f)": f"exponent({each})" for each in ("even", "odd")}


@pytest.mark.parametrize("activation", STEEPEST)
def test_gates_far_from_zero_share_a_reciprocal_that_stays_finite(activation: str, cubins: Path) -> None:
    plan = plan_of(gated_map(64, shuffled=False), 72, 64, 128, dtype="bf16")
    check(plan, cubins, activation=activation, gates=64)

    def run(seed: int) -> None:
        check(plan, cubins, activation=activation, gates=64, changes=UNCUT, seed=seed)

    assert_noticed(run, "not what", range(1))


WRONG = {
    "rows of C stand where those of A do": {"gated_row(load_early(rows": "(load_early(rows"},
    "up is the row behind the gate": {
        "pack_gated(sums + 4 * i, sums + 4 * i + 2": "pack_gated(sums + 4 * i, sums + 4 * i + 1"
    },
    "8 tokens are staged where others belong": {"BLOCKS * pair + block": "BLOCKS * pair + (block ^ 1)"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    plan = plan_of(gated_map(128, 700, shuffled=False), 520, 128, 256, blocks=5)

    def run(seed: int) -> None:
        check(plan, cubins, changes=WRONG[wrong], seed=seed)

    assert_noticed(run, "not what|outside|around", range(2))
