"""What the menu says that tiles retain is what a pruning to that pattern retains."""

import numpy as np
import pytest

from prunecast.codesign.search import layer_options as layer_options_module
from prunecast.codesign.search.layer_options import layer_options
from prunecast.codesign.search.option_times import OptionTimes
from prunecast.hardware import load_gpu
from prunecast.patterns import TileSums, parse_pattern
from prunecast.workload import Engine

GPU = load_gpu("h200-sxm")


@pytest.mark.parametrize("suffix", ["", "x16x97-103", "x16x75-125", "x16x0-inf"])
@pytest.mark.parametrize("height", [64, 128, 256])
def test_a_menu_promises_what_a_pruning_keeps(height: int, suffix: str) -> None:
    rng = np.random.default_rng(3)
    importance = (rng.random((512, 512)) * np.exp(rng.standard_normal((512, 1)))).astype(np.float32)
    engine = Engine(name="model", gpu=GPU)
    times = OptionTimes(engine=engine, dtype="fp16", typical={importance.shape: lambda: importance})
    sums = TileSums.of(importance, 64)
    own = [
        option
        for option in layer_options(importance, sums, 1024, times, families=("atp",))
        if option.pattern == f"atp:{height}{suffix}"
    ]
    for option in own[:: len(own) // 5]:
        mask = parse_pattern(option.pattern).prune({"layer": importance}, option.sparsity)["layer"]
        retained = float(importance.sum(where=mask, dtype=np.float64))
        # Pruning deals in whole quanta of 16 of 512 columns, the menu in single ones: 2.5 % at most
        assert option.importance == pytest.approx(retained, rel=1e-6 if suffix == "x16x97-103" else 0.03)
        assert option.kept == pytest.approx(mask.sum(), rel=0.0 if suffix == "x16x97-103" else 0.02)


@pytest.mark.parametrize("pattern", ["tvw:128", "tvw:128:even"])
def test_between_two_prunings_tvw_retains_what_the_menu_says(pattern: str) -> None:
    rng = np.random.default_rng(3)
    importance = (rng.random((512, 512)) * np.exp(rng.standard_normal((512, 512)))).astype(np.float32)
    times = OptionTimes(
        engine=Engine(name="model", gpu=GPU), dtype="fp16", typical={(512, 512): lambda: importance}
    )
    sums = TileSums.of(importance, 64)
    options = layer_options(importance, sums, 1024, times, families=("tvw",))
    own = [option for option in options if option.pattern == pattern]
    assert own[0].sparsity == 0.53125
    assert own[-1].sparsity == 0.875
    for option in own:
        mask = parse_pattern(pattern).prune({"layer": importance}, option.sparsity)["layer"]
        retained = float(importance.sum(where=mask, dtype=np.float64))
        # What is retained is concave in the sparsity; a line between points 1/8 apart misses little
        assert retained * 0.98 < option.importance < retained * 1.005
        assert option.kept == pytest.approx(mask.sum(), rel=0.02)


@pytest.mark.parametrize("families", [(), ("atp",), ("2:4",), ("tvw",), ("atp", "2:4")])
def test_only_families_that_were_asked_for_are_offered(families: tuple[str, ...]) -> None:
    importance = np.random.default_rng(3).random((256, 256)).astype(np.float32)
    engine = Engine(name="model", gpu=GPU)
    times = OptionTimes(engine=engine, dtype="fp16", typical={importance.shape: lambda: importance})
    found = layer_options(importance, TileSums.of(importance, 64), 1024, times, families=families)
    offered = {
        option.pattern if option.pattern == "2:4" else option.pattern.split(":")[0] for option in found
    }
    assert offered == {"dense", *families}


LIMITS = {
    "tvw": "MOST_NESTED_WEIGHTS",
    "dense-block": "MOST_BLOCK_WEIGHTS",
    "shuffled": "MOST_SHUFFLED_WEIGHTS",
}


@pytest.mark.parametrize("family", LIMITS)
@pytest.mark.parametrize("more", [0, 1])
def test_a_family_that_prunes_slowly_is_left_out_above_its_number_of_weights(
    family: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most that is allowed is still offered."""
    monkeypatch.setattr(layer_options_module, LIMITS[family], 256 * 256 - more)
    importance = np.random.default_rng(3).random((256, 256)).astype(np.float32)
    engine = Engine(name="model", gpu=GPU)
    times = OptionTimes(engine=engine, dtype="fp16", typical={importance.shape: lambda: importance})
    options = layer_options(importance, TileSums.of(importance, 64), 64, times, families=(family,))
    assert (len(options) > 1) == (more == 0)


@pytest.mark.parametrize(
    ("family", "within", "beyond"),
    [
        ("tvw", 2048 * 4096, 4096 * 4096),
        ("dense-block", 512 * 1024, 1024 * 1024),
        ("shuffled", 1024 * 2048, 2048 * 2048),
    ],
)
def test_slow_families_are_of_sizes_for_which_a_search_has_time(
    family: str, within: int, beyond: int
) -> None:
    assert within <= getattr(layer_options_module, LIMITS[family]) < beyond
