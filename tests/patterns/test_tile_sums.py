"""Sums over tiles decide as the matrix does: the slow twin prunes the matrix and reads its mask."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.patterns import TileSums, parse_pattern


def drawn(m: int, k: int, seed: int) -> np.ndarray:
    """Whole numbers: their sums are exact in any order, and equal ones are many."""
    return np.random.default_rng(seed).integers(1, 40, (m, k)).astype(np.float32)


@given(
    m=st.integers(1, 70),
    k=st.integers(16, 90),
    groups=st.integers(1, 4),
    pattern=st.sampled_from(["atp:{}", "atp:{}x8", "atp:{}x8x75-125", "atp:{}x1x0-inf", "atp:{}x4x100-100"]),
    sparsity=st.floats(0.0, 0.99),
    seed=st.integers(0, 99),
)
def test_the_map_is_that_of_the_pruned_matrix(
    m: int, k: int, groups: int, pattern: str, sparsity: float, seed: int
) -> None:
    importance = drawn(max(m, 4 * groups), k, seed)
    rule = parse_pattern(pattern.format(4 * groups))
    mask = rule.prune({"layer": importance}, sparsity)["layer"]
    sums = TileSums.of(importance, 4)
    tiles = rule.map_of_sums(sums, sparsity)
    assert tiles.fingerprint() == rule.map(mask).fingerprint()
    assert tiles.pattern == rule.canonical
    assert sums.taller(4 * groups).retained(tiles) == importance.sum(where=mask, dtype=np.float64)


@given(m=st.integers(1, 40), height=st.integers(1, 5), times=st.integers(1, 4))
def test_taller_tiles_have_the_sums_of_their_rows(m: int, height: int, times: int) -> None:
    importance = drawn(m, 7, m)
    taller, own = (
        TileSums.of(importance, height).taller(height * times),
        TileSums.of(importance, height * times),
    )
    assert np.array_equal(taller.sums, own.sums)
    assert taller.heights.tolist() == own.heights.tolist()
    assert taller.heights.sum() == m


@pytest.mark.parametrize("pattern", ["atp:8:shuffled", "atp:8:rms", "atp-2d:8"])
def test_patterns_that_rank_by_more_are_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="more than sums"):
        parse_pattern(pattern).map_of_sums(TileSums.of(drawn(16, 32, 0), 4), 0.5)


def test_tiles_that_are_no_whole_tiles_are_refused() -> None:
    with pytest.raises(BadInput, match="multiple of 4, got 6"):
        parse_pattern("atp:6").map_of_sums(TileSums.of(drawn(16, 32, 0), 4), 0.5)
