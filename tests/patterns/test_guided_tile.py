"""Laws of tiles that are chosen by predicted time, with made-up times."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.guided_tile import layouts
from tests.patterns.matrices import groups, importances, sparsities


@st.composite
def times(draw):
    """Seconds of tiles: a price for the fullest one, and one for all together."""
    of_fullest, of_all = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    return lambda _, tiles: float(
        of_fullest * tiles.kept_per_tile.max(initial=0) * 4 + of_all * tiles.kept_per_tile.sum()
    )


def retained(matrix, mask):
    return float((matrix * mask).sum(dtype=np.float64))


@given(
    group=groups(min_rows=4, min_columns=3),
    sparsity=sparsities,
    height=st.integers(1, 4),
    quantum=st.integers(1, 3),
)
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("suffix", ["", ":shuffled"])
def test_as_important_as_tile_wise_and_no_slower(scope, suffix, group, sparsity, height, quantum):
    def seconds(_, tiles):
        return float(4 * tiles.kept_per_tile.max(initial=0) + tiles.kept_per_tile.sum())

    tile_wise = parse_pattern(f"tile-wise:{height}")
    guided = parse_pattern(f"atp:{height}x{quantum}{suffix}:guided").timed_by(seconds)
    wanted = tile_wise.prune(group, sparsity, scope)
    found = guided.prune(group, sparsity, scope)
    for name, matrix in group.items():
        assert retained(matrix, found[name]) >= retained(matrix, wanted[name])
        assert seconds(name, guided.map(found[name])) <= seconds(name, tile_wise.map(wanted[name]))


@given(
    columns=st.permutations(range(1, 25)),
    tiles=st.integers(1, 4),
    kept=st.integers(1, 3),
    seconds=times(),
)
def test_on_equal_rows_it_is_plain_atp(columns, tiles, kept, seconds):
    """Where the mean is a multiple of the longest step; with columns alike, ties would decide."""
    matrix = np.tile(np.array(columns, np.float32), (2 * tiles, 1))
    sparsity = 1.0 - 8 * kept / len(columns)
    plain = parse_pattern("atp:2x1").prune({"w": matrix}, sparsity)["w"]
    guided = parse_pattern("atp:2x1:guided").timed_by(seconds).prune({"w": matrix}, sparsity)["w"]
    np.testing.assert_array_equal(guided, plain)


def test_of_layouts_that_take_equally_long_the_one_with_the_fewest_weights():
    """One tile is worth nine times the other: its columns alone stay where time does not depend on tiles."""
    matrix = np.repeat([[9.0] * 8, [1.0] * 8], 2, axis=0).astype(np.float32)
    guided = parse_pattern("atp:2x1:guided").timed_by(lambda _, tiles: 1.0)
    found = guided.map(guided.prune({"w": matrix}, 0.5)["w"])
    assert found.kept_per_tile.tolist() == [8, 0]


def slow_layout(ranked, heights, enough, step, limit):
    """Best step again and again, until enough is retained; None where the limit does not allow it."""
    counts, kept = [0] * len(heights), 0.0
    while kept < enough:
        best = None
        for tile, count in enumerate(counts):
            stop = min(count + step, len(ranked[tile]))
            if stop > count and stop <= limit:
                gain = sum(ranked[tile][count:stop])
                value = gain / heights[tile] / (stop - count)
                if best is None or value > best[0]:
                    best = (value, gain, tile, stop)
        if best is None:
            return None
        counts[best[2]], kept = best[3], kept + best[1]
    return tuple(counts)


@given(matrix=importances(min_columns=2), share=st.integers(1, 10), quantum=st.integers(1, 3))
def test_layouts_are_those_of_the_slow_twin(matrix, share, quantum):
    """Of tiles of one row and steps of one width."""
    width = matrix.shape[1] // quantum * quantum
    assume(width > 0 and matrix[:, :width].any())
    ranked = -np.sort(-matrix[:, :width].astype(np.float64), axis=1)
    enough = ranked.sum() * share / 10
    heights = np.ones(len(ranked), np.int64)
    found = {tuple(counts.tolist()) for counts in layouts(ranked, heights, enough, quantum)}
    slow = {
        slow_layout(ranked.tolist(), heights.tolist(), enough, quantum * quanta, limit)
        for quanta in (1, 2, 4, 8)
        for limit in range(width + 1)
    }
    # Where steps tie, the slow twin may take another tile first: what is kept in all is the same
    assert {(max(counts), sum(counts)) for counts in found} <= {
        (max(counts), sum(counts)) for counts in slow - {None}
    }
    assert min(map(max, found)) == min(max(counts) for counts in slow - {None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("atp:4x1x0-inf:guided", "guided counts follow time alone"),
        ("atp:4:rms:guided", "guided counts follow time alone"),
        ("atp-2d:4:guided", "guided counts follow time alone"),
        ("atp:4:guided:shuffled", "pattern like atp:128"),
    ],
)
def test_other_rules_and_guided_exclude_each_other(text, message):
    with pytest.raises(BadInput, match=message):
        parse_pattern(text)


def test_the_name_is_found_again():
    for text in ("atp:64:guided", "atp:64x8:guided", "atp:64:shuffled:guided"):
        assert parse_pattern(text).canonical == text
        assert parse_pattern(text).needs_times


def test_without_times_it_is_refused():
    pattern, group = parse_pattern("atp:2x1:guided"), {"w": np.ones((4, 4), np.float32)}
    with pytest.raises(BadInput, match="needs a kernel and a GPU"):
        pattern.prune(group, 0.5)
