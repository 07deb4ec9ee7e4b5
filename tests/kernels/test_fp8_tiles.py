"""Plans of tiles in fp8: their meaning, their times by both engines and in a record, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS, run_reference
from prunecast.kernels.tile.config import TOKEN_FORM
from prunecast.launch.context import has_copied_rows
from prunecast.models import estimate
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.tile_rows import keeps_runs
from prunecast.simulator import simulate

GPU = load_gpu("h200-sxm")
RECORD = Path(__file__).parents[2] / "benchmarks" / "measured" / "h200-sxm-fp8-tiles-2026-11-28.json"
MOST_OFF = 0.08
"""Error of the times in the record, of which one product is fitted to."""


def random_runs(m: int, k: int, sparsity: float) -> TileMap:
    """Tiles of 256 rows with equally many random runs of 32 columns, as the record has them."""
    rng, runs = np.random.default_rng(k), k // 32
    kept = max(round(runs * (1.0 - sparsity)), 1)
    first = [np.sort(rng.choice(runs, kept, replace=False)) for _ in range(m // 256)]
    return TileMap(
        m=m,
        k=k,
        row_start=256 * np.arange(m // 256 + 1),
        row_index=np.arange(m),
        column_start=32 * kept * np.arange(m // 256 + 1),
        column_index=(32 * np.array(first)[:, :, None] + np.arange(32)).ravel(),
        pattern="block:256x32",
    )


def test_a_plan_computes_the_product_of_what_is_kept() -> None:
    rng, pattern = np.random.default_rng(0), parse_pattern("block:256x32")
    a, b = rng.standard_normal((700, 480)), rng.standard_normal((480, 300))
    mask = pattern.prune({"a": np.abs(a)}, 0.6)["a"]
    plan = fastest_plan("stspmm", pattern.map(mask), 300, "fp8", GPU)
    assert plan.shape == (*TOKEN_FORM, 128)
    np.testing.assert_allclose(run_reference(plan, a, b), (a * mask) @ b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("m", "k", "n", "sparsity"), [(4096, 4096, 2048, 0.75), (2048, 2048, 8192, 0.5)])
def test_the_engines_agree_and_fp8_is_faster_than_16_bits(m: int, k: int, n: int, sparsity: float) -> None:
    tiles = random_runs(m, k, sparsity)
    plan = fastest_plan("stspmm", tiles, n, "fp8", GPU)
    times = estimate(plan, GPU).seconds, simulate(plan, GPU).seconds
    assert times[0] == pytest.approx(times[1], rel=0.1)
    fma_per_s = GPU.tensor_fp8_fma_per_clk_per_sm * GPU.sm_count * GPU.max_clock_hz
    assert min(times) > plan.density * m * k * n / fma_per_s
    assert max(times) < estimate(fastest_plan("stspmm", tiles, n, "bf16", GPU), GPU).seconds


@pytest.mark.parametrize("engine", [estimate, simulate])
def test_times_are_those_of_the_record(engine: object) -> None:
    for row in json.loads(RECORD.read_text())["products"]:
        sizes, sparsity = row["product"].split()
        m, k, n = map(int, sizes.split("x"))
        plan = fastest_plan("stspmm", random_runs(m, k, float(sparsity[:-1]) / 100), n, "fp8", GPU)
        predicted = 1e6 * engine(plan, GPU).seconds
        assert predicted == pytest.approx(row["us"]["fp8 tiles, product"], rel=MOST_OFF), row["product"]


def test_tiles_of_other_columns_are_refused_with_the_pattern_to_use() -> None:
    runs, pattern = random_runs(512, 512, 0.5), parse_pattern("tile-wise:256")
    weights = np.random.default_rng(0).random((512, 512))
    single = pattern.map(pattern.prune({"a": weights}, 0.5)["a"])
    assert keeps_runs(runs, 32)
    assert keeps_runs(single, 1)
    assert not keeps_runs(single, 32)
    columns = np.array(runs.column_index)
    first = runs.column_start[:-1]
    columns[first[columns[first] > 0][0]] -= 1
    names = ("m", "k", "row_start", "row_index", "column_start", "pattern")
    shifted = TileMap(column_index=columns, **{name: getattr(runs, name) for name in names})
    for tiles in (single, shifted):
        with pytest.raises(BadInput, match="block:256x32"):
            fastest_plan("stspmm", tiles, 256, "fp8", GPU)


def test_b_of_fp8_needs_no_padded_copy_for_its_tokens() -> None:
    assert has_copied_rows("stspmm", 4321, "fp16")
    assert not has_copied_rows("stspmm", 4321, "fp8")


def test_gpus_without_wgmma_and_other_kernels_refuse_fp8() -> None:
    tiles = random_runs(512, 512, 0.5)
    for gpu in ("a100-sxm4-80gb", "rtx-4090"):
        with pytest.raises(BadInput, match="need wgmma"):
            fastest_plan("stspmm", tiles, 256, "fp8", load_gpu(gpu))
    with pytest.raises(BadInput, match="fp8 for tiles too"):
        fastest_plan("small-n", tiles, 16, "fp8", GPU)
    plan = fastest_plan("stspmm", tiles, 256, "fp8", GPU)
    assert KERNELS["stspmm"].why_predicted_only(plan, GPU) is None
