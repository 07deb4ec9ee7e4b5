import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.choice import product_of
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.patterns import parse_pattern
from prunecast.patterns.element_map import NestedMap
from prunecast.validation.case import Case
from prunecast.validation.case_maps import case_plan, kept_counts, map_of, measured_plan
from prunecast.validation.records import Measurement

GPU = load_gpu("h200-sxm")


def case(pattern="tile-wise:32", sparsity=0.5, distribution="equal", seed=1, kernels=("stspmm",)):
    return Case(
        name="c",
        m=192,
        k=256,
        n=64,
        dtype="fp16",
        pattern=pattern,
        sparsity=sparsity,
        distribution=distribution,
        seed=seed,
        kernels=kernels,
        use="fit",
    )


def test_maps_repeat_and_seeds_differ():
    first, again, other = (map_of(case(seed=seed)).fingerprint() for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("distribution", ["equal", "lognormal:0.8", "lognormal:1.5", "ramp", "one-full"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
def test_totals_are_those_of_equal_tiles(distribution, sparsity):
    kept = map_of(case(sparsity=sparsity, distribution=distribution)).kept_per_tile
    assert kept.sum() == 6 * round(256 * (1 - sparsity))
    if distribution == "one-full":
        assert kept[0] == min(256, kept.sum())


def test_skew_grows_with_the_spread():
    def imbalance(text):
        kept = map_of(case(distribution=text, sparsity=0.75)).kept_per_tile
        return kept.max() / kept.mean()

    assert imbalance("equal") == 1.0
    assert 1.0 < imbalance("lognormal:0.2") < imbalance("lognormal:1.2")


@given(
    tiles=st.integers(2, 40),
    most=st.integers(1, 300),
    density=st.floats(0.0, 1.0),
    family=st.sampled_from(["lognormal:1.0", "ramp"]),
)
def test_counts_stay_inside_and_keep_the_total(tiles, most, density, family):
    counts = kept_counts(case(distribution=family), tiles, most, density, np.random.default_rng(1))
    assert counts.min() >= 0
    assert counts.max() <= most
    assert counts.sum() == tiles * round(most * density)


@pytest.mark.parametrize(
    ("pattern", "sparsity"),
    [
        ("tile-wise:64", 0.75),
        ("shuffled-block:32", 0.5),
        ("block:32x32", 0.5),
        ("2:4", 0.5),
        ("tvw:64", 0.75),
        ("tvw:64", 0.5),  # every column, two of four weights of each row
        ("balanced:64", 0.75),
        ("unstructured", 0.75),
        ("dense-block:4", 0.75),
        ("vector-wise:32", 0.5),
    ],
)
def test_maps_have_the_sparsity_and_bear_out_their_pattern(pattern, sparsity):
    kept = map_of(case(pattern=pattern, sparsity=sparsity))
    assert kept.density == pytest.approx(1 - sparsity, abs=0.02)
    again = parse_pattern(pattern).map(kept.mask())
    assert again.density == pytest.approx(kept.density)
    if pattern == "tvw:64":
        assert isinstance(kept, NestedMap)


@pytest.mark.parametrize(
    ("pattern", "width"),
    [("tile-wise:64", 1), ("shuffled-block:32", 1), ("block:32x8", 8), ("block:32x32", 32)],
)
def test_columns_are_drawn_in_runs_of_the_width_of_their_pattern(pattern, width):
    mask = map_of(case(pattern=pattern)).mask().astype(np.int8)
    edges = np.nonzero(np.diff(mask, axis=1))[1] + 1
    assert np.gcd.reduce(edges) == width


def test_dense_keeps_no_map():
    assert map_of(case(pattern="dense", sparsity=0.0)).density == 1.0


def test_two_of_four_inside_tiles_cannot_keep_more_than_half():
    with pytest.raises(BadInput, match="2 of 4"):
        map_of(case(pattern="tvw:64", sparsity=0.25))


def test_kernels_that_cannot_be_planned_are_named():
    with pytest.raises(BadInput, match="'fastest' cannot be planned"):
        case_plan(case(), "fastest", map_of(case()), GPU)
    with pytest.raises(BadInput, match="needs a pattern"):
        case_plan(case(pattern="dense"), "stspmm", map_of(case(pattern="dense")), GPU)


@pytest.mark.parametrize("kernel", ["stspmm", "tile-wise", "block-sparse"])
def test_a_record_is_predicted_in_the_config_that_was_measured(kernel):
    """Also where this version would choose another one; where it has no such config, with its own choice."""
    measured = case(pattern="tile-wise:128", sparsity=0.75)
    tiles = map_of(measured)
    chosen = case_plan(measured, kernel, tiles, GPU)
    for config in product_of(kernel, tiles, measured.n, measured.dtype, GPU).configs():
        row = Measurement(case=measured, kernel=kernel, config=str(config), plan="of another planner")
        assert measured_plan(row, tiles, GPU).config == config
    row = Measurement(case=measured, kernel=kernel, config="1024x1024x1 s0", plan="of another planner")
    assert measured_plan(row, tiles, GPU).fingerprint() == chosen.fingerprint()
