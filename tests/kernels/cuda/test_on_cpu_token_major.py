"""C as frameworks have it, (tokens, features): written so by the kernels, on an emulated machine."""

from pathlib import Path

import numpy as np
import pytest

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.configs import SmallConfig, _block_widths
from prunecast.kernels.small_n.kernel import _plan_small_n
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.stspmm import spread_over_clusters
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.plan.assignment import assign_stream_k
from tests.kernels.cuda.on_cpu.mistakes import assert_noticed
from tests.kernels.cuda.on_cpu.on_cpu import UNAVAILABLE
from tests.kernels.cuda.on_cpu.operands import Operands, Rows, check_c, make_operands, rows_of
from tests.kernels.cuda.on_cpu.small_run import run_small
from tests.kernels.cuda.on_cpu.sparse_run import run_sparse
from tests.kernels.cuda.on_cpu.tile_run import run_fill, run_tiles
from tests.kernels.cuda.plans import GPU, plan_of, ragged_map
from tests.kernels.cuda.sparse.layouts import plan_of as sparse_plan_of

pytestmark = pytest.mark.skipif(UNAVAILABLE, reason="needs Linux and g++")


def new_c(plan: KernelPlan, operands: Operands, tokens: int, *, residual: bool) -> Rows:
    """Poisoned or random; rows of whole groups of 16 bytes, as M must be for the copy engine."""
    values = np.random.default_rng(2).standard_normal((tokens, plan.m)) if residual else np.nan
    dtype = operands.c.matrix.dtype
    return rows_of(np.full((tokens, plan.m), values).astype(dtype), apart=-(-plan.m // 8) * 8)


def check(
    plan: KernelPlan,
    folder: Path,
    *,
    tokens: int,
    activation: str = "none",
    bias: bool = False,
    residual: bool = False,
    **choices,
) -> None:
    """The rows in tiles against float64, for the tokens that C has; nothing around them is touched."""
    operands = make_operands(plan, bias=bias, align=8)
    c = new_c(plan, operands, tokens, residual=residual)
    before, choices = c.matrix.astype(np.float32), {"residual": residual, **choices}
    if plan.kernel == "small-n":
        run_small(plan, operands, folder, activation=activation, token_major=c, **choices)
    elif plan.kernel == "2:4":
        run_sparse(plan, operands, folder, activation=activation, token_major=c, **choices)
    else:
        run_tiles(plan, operands, folder, activation=activation, token_major=c, **choices)
        run_fill(plan, operands, folder, activation=activation)  # twins have no rows outside of tiles
    assert np.isnan(c.whole.astype(np.float32)[c.outside()]).all(), "something around C was written"
    covered = np.sort(plan.tiles.row_index) if plan.kernel != "small-n" else np.arange(plan.m)
    wanted = plain(plan, operands, folder, activation)[covered, :tokens].T
    if residual:  # each sum is rounded as the dtype says
        wanted = (wanted.astype(np.float32) + before[:, covered]).astype(wanted.dtype)
    assert np.array_equal(c.matrix[:, covered], wanted), "not what the kernel writes as (features, tokens)"


PLAIN: dict[tuple[str, str, bool], np.ndarray] = {}


def plain(plan: KernelPlan, operands: Operands, folder: Path, activation: str) -> np.ndarray:
    """C as (features, tokens), by the same kernel without the flag; operands follow from the plan."""
    key = plan.fingerprint(), activation, operands.bias is not None
    if key not in PLAIN:
        run_plain(plan, operands, folder, activation)
        check_c(plan, operands, activation)
        PLAIN[key] = operands.c.matrix.copy()
    return PLAIN[key]


def run_plain(plan: KernelPlan, operands: Operands, folder: Path, activation: str) -> None:
    if plan.kernel == "small-n":
        run_small(plan, operands, folder, activation=activation)
    elif plan.kernel == "2:4":
        run_sparse(plan, operands, folder, activation=activation)
        run_fill(plan, operands, folder, activation=activation)
    else:
        run_tiles(plan, operands, folder, activation=activation)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_long_lists_and_split_tiles(shuffled: bool, landing: str, cubins: Path) -> None:
    plan = plan_of(ragged_map(128, k=700, shuffled=shuffled), 520, 128, 256, blocks=5)
    assert plan.work.parts.max() == 2
    check(plan, cubins, tokens=517, landing=landing)


@pytest.mark.parametrize(
    ("form", "n", "tokens", "dtype"),
    [
        ((128, 192), 208, 203, "bf16"),
        ((128, 128), 72, 72, "fp16"),
        ((128, 64), 64, 57, "fp16"),
        ((64, 256), 200, 193, "bf16"),
        ((64, 128), 136, 136, "fp16"),
    ],
)
def test_every_form(form: tuple[int, int], n: int, tokens: int, dtype: str, cubins: Path) -> None:
    tiles = ragged_map(form[0], shuffled=False)
    check(plan_of(tiles, n, *form, dtype=dtype), cubins, tokens=tokens, backwards=True)


def token_form_plan(n: int, *, shuffled: bool, dtype: str = "fp16", clusters: int = 2) -> KernelPlan:
    tiles = ragged_map(256, k=700, shuffled=shuffled)
    config = next(v for v in wgmma_configs(GPU, dtype, "wgmma") if v.shape[:2] == (256, 128))
    items = items_of(tiles, config, n, GPU, cluster=2)
    spread = spread_over_clusters(assign_stream_k(items, clusters, 64), 2, 128)
    return tile_plan("stspmm", tiles, n, config, spread, GPU, b_access="gather", cluster=2)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("landing", ["oldest", "newest", "at-once"])
def test_the_form_with_tokens_as_rows_in_clusters(shuffled: bool, landing: str, cubins: Path) -> None:
    check(token_form_plan(392, shuffled=shuffled), cubins, tokens=387, landing=landing)


@pytest.mark.parametrize("form", [(128, 128), (256, 128)])
def test_bias_and_activation(form: tuple[int, int], cubins: Path) -> None:
    if form == (256, 128):
        plan = token_form_plan(136, shuffled=False)
    else:
        plan = plan_of(ragged_map(128, shuffled=False), 136, *form, blocks=7)
    check(plan, cubins, tokens=130, activation="gelu", bias=True)


@pytest.mark.parametrize(("shuffled", "dtype"), [(False, "fp16"), (True, "bf16")])
@pytest.mark.parametrize("form", [(128, 256), (64, 128), (256, 128)])
def test_the_product_is_added_to_a_residual(
    form: tuple[int, int], dtype: str, cubins: Path, *, shuffled: bool
) -> None:
    """By the owner of a split tile alone, and in the rows and tokens that C has."""
    if form == (256, 128):
        plan = token_form_plan(392, shuffled=shuffled, dtype=dtype, clusters=5)
    else:
        plan = plan_of(ragged_map(form[0], k=700, shuffled=shuffled), 392, *form, blocks=7, dtype=dtype)
    assert plan.work.parts.max() > 1
    check(plan, cubins, tokens=387, bias=True, residual=True, landing="newest")


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("form", "dtype"), [((256, 128), "fp16"), ((256, 64), "bf16"), ((128, 256), "fp16")])
def test_two_of_four(form: tuple[int, int], dtype: str, shuffled: bool, cubins: Path) -> None:
    plan = sparse_plan_of(200, form, blocks=3, k=600, slices=3, shuffled=shuffled, dtype=dtype)
    check(plan, cubins, tokens=197, bias=not shuffled, residual=shuffled)


def test_two_of_four_adds_to_a_residual_behind_its_activation(cubins: Path) -> None:
    plan = sparse_plan_of(72, (128, 64), blocks=2, shuffled=False)
    check(plan, cubins, tokens=65, activation="gelu", bias=True, residual=True)


@pytest.mark.parametrize(("n", "tokens"), [(1, 1), (8, 3), (16, 16), (64, 57)])
@pytest.mark.parametrize(("dtype", "block_m"), [("fp16", 64), ("bf16", 16)])
def test_few_tokens(n: int, tokens: int, dtype: str, block_m: int, cubins: Path) -> None:
    config = SmallConfig(block_m, _block_widths(n)[0], 4)
    plan = _plan_small_n(ragged_map(block_m), n, dtype, load_gpu("h200-sxm"), config=config)
    check(plan, cubins, tokens=tokens, bias=True)


WRONG_TURNS = {
    "8 rows of a token are exchanged": {"lane % 8, lane / 8 % 2);": "lane % 8, 1 - lane / 8 % 2);"},
    "tokens beyond C are written": {"if (row >= args.c_tokens) return;": ""},
    "rows that follow no other are stored as if they did": {
        "in_line = first >= 0 && first % 8 == 0 && row == first + lane % 16;": "in_line = first >= 0;"
    },
    "a chunk is stored before all lanes have staged": {"__syncwarp();\n    store_chunk": "store_chunk"},
}


@pytest.mark.parametrize("wrong", WRONG_TURNS)
def test_a_wrong_turn_of_two_of_four_is_found_out(wrong: str, cubins: Path) -> None:
    plan = sparse_plan_of(72, (128, 64), blocks=2, shuffled="follow" in wrong)
    assert_noticed(
        lambda seed: check(plan, cubins, tokens=65, changes=WRONG_TURNS[wrong], seed=seed),
        "not what|a race|around C|not aligned|outside of all arrays",
        range(4),
    )


SEEDS = range(6)
WRONG = {
    "a chunk is staged before all warps have stored": (
        {"bulk_stores_read();\n    warpgroup_sync(barrier);": "bulk_stores_read();"},
        "a race|asynchronous proxy|not what",
    ),
    "a chunk is stored before all warps have staged": (
        {"fence_async_proxy();\n    warpgroup_sync(barrier);": "fence_async_proxy();"},
        "a race|asynchronous proxy|not what",
    ),
    "8 rows are staged where the other 8 belong": (
        {"(2 * warp + lane / 8 % 2)": "(2 * warp + 1 - lane / 8 % 2)"},
        "not what",
    ),
    "tokens of a chunk are exchanged": (
        {"lane / 16 * 8 + lane % 8;": "lane % 8 * 2 + lane / 16;"},
        "not what|aligned",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_was_made_wrong_is_found_out(wrong: str, cubins: Path) -> None:
    changes, message = WRONG[wrong]
    plan = plan_of(ragged_map(128, k=700, shuffled=False), 520, 128, 256, blocks=5)

    def run(seed: int) -> None:
        check(plan, cubins, tokens=517, changes=changes, seed=seed)

    assert_noticed(run, message, SEEDS)
