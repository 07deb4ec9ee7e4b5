"""STSpMM gives nothing away on uneven maps where its planner's costs are guesses."""

import numpy as np
import pytest

from prunecast.choice import MOSTLY, TIE, fastest_plan, product_of
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS
from prunecast.models import estimate
from tests.kernels.layouts import tiles_keeping

TILES, N = 16, 2048
MAPS = {
    "skewed": np.linspace(1900, 20, TILES),
    "one heavy tile": [2000, *[128] * (TILES - 1)],
    "one tile": [2000, *[0] * (TILES - 1)],
    "equal": [512] * TILES,
    "power law": 2000 / np.arange(1, TILES + 1),
}


@pytest.mark.parametrize("gpu", ["v100-sxm2-16gb", "t4", "a100-sxm4-40gb"])
@pytest.mark.parametrize("name", MAPS)
def test_no_config_placed_by_hardware_or_by_equal_shares_is_faster(name: str, gpu: str) -> None:
    tiles, spec = tiles_keeping([int(kept) for kept in MAPS[name]], height=128, k=2048), load_gpu(gpu)
    chosen = estimate(fastest_plan("stspmm", tiles, N, "fp16", spec), spec).seconds
    for config in product_of("stspmm", tiles, N, "fp16", spec).configs():
        for kernel, options in (("tile-wise", {}), ("stspmm", {"assignment": "stream-k"}), ("stspmm", {})):
            other = product_of(kernel, tiles, N, "fp16", spec).plan(config, **options)
            assert chosen <= TIE * estimate(other, spec).seconds


def test_one_guess_widens_no_choice_where_costs_are_measured() -> None:
    guessed = {gpu: KERNELS["stspmm"].guessed_costs(load_gpu(gpu)) for gpu in ("h200-sxm", "a100-sxm4-40gb")}
    assert guessed["h200-sxm"] <= MOSTLY < guessed["a100-sxm4-40gb"]
