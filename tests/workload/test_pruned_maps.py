import pytest

from prunecast.workload.pruned_maps import fit_pattern


@pytest.mark.parametrize(
    ("text", "m", "k", "fitted"),
    [
        ("tile-wise:128", 100, 256, "tile-wise:64"),
        ("block:64x64", 128, 40, "block:64x32"),
        ("atp:128", 100, 256, "atp:64"),
        ("atp:128x64x90-110:shuffled", 100, 48, "atp:64x32x90-110:shuffled"),
        ("vnm:64:2:8", 48, 64, "vnm:32:2:8"),
        ("2:4", 1, 4, "2:4"),
    ],
)
def test_a_pattern_is_cut_to_powers_of_two_that_fit(text, m, k, fitted):
    found = fit_pattern(text, m, k)
    assert found.pattern.canonical == fitted
    assert (found.note == "") == (text == fitted)
