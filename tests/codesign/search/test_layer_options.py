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


class Linear:
    """Times of options that are the number of kept columns; records at which sparsities layers are pruned."""

    def __init__(self) -> None:
        self.grids: dict[object, object] = {}
        self.pruned_at: list[float | None] = []

    def dense(self, m: int, k: int, tokens: int) -> float:
        return float(m * k)

    def tile_curve(self, m: int, k: int, tokens: int, *, counts: range, **_: object) -> np.ndarray:
        return np.array(counts, dtype=np.float64)

    def two_of_four(self, pattern: str, mask: object, sparsity: float | None, size: object) -> float:
        self.pruned_at.append(sparsity)
        return 1.0


def columns_of(m: int, k: int) -> dict[str, list[int]]:
    """Pattern of tiles -> numbers of kept columns that are offered."""
    importance = np.random.default_rng(0).random((m, k), np.float32)
    found: dict[str, list[int]] = {}
    for option in layer_options(importance, TileSums.of(importance, 64), 128, Linear(), families=("atp",)):  # type: ignore[arg-type]
        found.setdefault(option.pattern, []).append(round(option.kept / m))
    return found


@pytest.mark.parametrize(
    ("m", "heights"), [(64, ["64"]), (127, ["64"]), (128, ["64", "128"]), (256, ["64", "128", "256"])]
)
def test_tiles_are_no_taller_than_the_layer(m: int, heights: list[str]) -> None:
    offered = {pattern.removeprefix("atp:").split("x")[0] for pattern in columns_of(m, 64) if ":" in pattern}
    assert offered == {*heights}


@pytest.mark.parametrize(
    ("k", "step"), [(64, 16), (1024, 16), (1025, 16), (1152, 32), (2048, 48), (4096, 80)]
)
def test_tiles_have_about_48_numbers_of_columns_in_whole_quanta(k: int, step: int) -> None:
    offered = columns_of(64, k)
    counts = sorted({*offered["atp:64x16x97-103"]})
    assert counts == [*range(step, k, step)]
    between = {kept for kept in range(step, k // 4, step // 4) if kept % step}
    for pattern in ("atp:64", "atp:64x16x75-125", "atp:64x16x0-inf"):
        assert {*offered[pattern]} == {*counts} | between
    assert ("atp:64x8x97-103" in offered) == (k <= 1024)


def test_2_of_4_in_tiles_is_pruned_at_three_sparsities_and_offered_in_steps_of_a_thirty_second() -> None:
    importance = np.random.default_rng(0).random((128, 64), np.float32)
    times = Linear()
    found = layer_options(importance, TileSums.of(importance, 64), 128, times, families=("tvw",))  # type: ignore[arg-type]
    assert times.pruned_at == [None, *(2 * [0.625, 0.75, 0.875])]
    for pattern in ("tvw:128", "tvw:128:even"):
        own = [option for option in found if option.pattern == pattern]
        assert [option.sparsity for option in own] == [place / 32 for place in range(17, 29)]
        assert [option.kept for option in own] == [round((1 - o.sparsity) * 128 * 64) for o in own]


@pytest.mark.parametrize(("most", "is_even"), [(110, True), (111, False)])
def test_tiles_are_even_up_to_a_tenth_above_the_mean(most: int, is_even: bool) -> None:
    """The best quarter of two tiles of 400 columns: 200 columns, `most` of them in the first tile."""
    ranked = np.zeros((2, 400))
    ranked[0, :most], ranked[1, : 200 - most] = 1.0, 1.0
    assert layer_options_module._are_even(ranked) == is_even
