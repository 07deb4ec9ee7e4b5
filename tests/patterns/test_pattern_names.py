import pytest

from prunecast.errors import BadInput
from prunecast.patterns import PATTERNS, parse_pattern


@pytest.mark.parametrize(
    ("text", "canonical", "parameters"),
    [
        ("dense", "dense", {}),
        ("Unstructured ", "unstructured", {}),
        ("zeros", "zeros", {}),
        ("block:64x32", "block:64x32", {"height": 64, "width": 32}),
        ("64x32", "block:64x32", {"height": 64, "width": 32}),
        ("2:4", "2:4", {"n": 2, "m": 4}),
        ("n-of-m:2:4", "2:4", {"n": 2, "m": 4}),
        ("4:4", "4:4", {"n": 4, "m": 4}),
        ("tile-wise:0128", "tile-wise:128", {"height": 128}),
        ("balanced:64", "balanced:64", {"width": 64}),
        ("shfl-bw:64", "shuffled-block:64", {"height": 64}),
        ("vector-wise:32", "vector-wise:32", {"height": 32}),
        ("atp:128x16x97-103", "atp:128x16x97-103", {"height": 128, "quantum": 16, "low": 97, "high": 103}),
        ("atp:64x32", "atp:64x32", {"height": 64, "quantum": 32, "low": 97, "high": 103}),
        ("atp:64x16x90-110", "atp:64x16x90-110", {"height": 64, "quantum": 16, "low": 90, "high": 110}),
        ("atp-2d:64x1x0-INF", "atp-2d:64x1x0-inf", {"height": 64, "quantum": 1, "low": 0, "high": 10**9}),
        (
            "atp:64x16x97-103:shuffled:rms",
            "atp:64x16x97-103:shuffled:rms",
            {"height": 64, "quantum": 16, "low": 97, "high": 103},
        ),
        ("apriori:128x5", "apriori:128", {"height": 128, "percent": 5}),
        ("apriori:64x10", "apriori:64x10", {"height": 64, "percent": 10}),
        ("tvw:128", "tvw:128", {"height": 128}),
        ("tvw:64:even", "tvw:64:even", {"height": 64}),
        ("vnm:64:2:8", "vnm:64:2:8", {"height": 64, "n": 2, "m": 8}),
        ("vnm:64x2x8", "vnm:64:2:8", {"height": 64, "n": 2, "m": 8}),
        ("tew:128x5", "tile-element:128", {"height": 128, "percent": 5}),
        ("tile-element:64x10", "tile-element:64x10", {"height": 64, "percent": 10}),
        ("dense-block", "dense-block:8", {"clusters": 8}),
        ("dense-block:4", "dense-block:4", {"clusters": 4}),
        ("tw:128", "tile-wise:128", {"height": 128}),
        ("tile-wise-2d:64", "tile-wise-2d:64", {"height": 64}),
        ("tw-2d:64", "tile-wise-2d:64", {"height": 64}),
    ],
)
def test_strings_and_their_canonical_spelling(text, canonical, parameters):
    pattern = parse_pattern(text)
    assert (pattern.canonical, pattern.parameters) == (canonical, parameters)
    assert parse_pattern(pattern.canonical) == pattern


def test_every_family_has_a_name_and_an_example_that_parses_to_itself():
    for family, pattern in PATTERNS.items():
        parsed = parse_pattern(pattern.example)
        assert parsed.name == family
        assert parsed.canonical == pattern.example


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tile_wise:128", r"unknown pattern 'tile_wise:128'; did you mean tile-wise:128"),
        ("blok:64x64", r"unknown pattern 'blok:64x64'; did you mean block:64x64\?"),
        ("", "unknown pattern ''; known: dense, unstructured, block:64x64, 2:4, balanced:64, vector-wise:64"),
        ("tile-wise:0", "pattern like tile-wise:128: wanted height from 1, got '0'"),
        ("tile-wise", "pattern like tile-wise:128: wanted height from 1, got ''"),
        ("tile-wise:-4", "wanted height from 1, got '-4'"),
        ("tile-wise:1.5", "wanted height from 1, got '1.5'"),
        ("block:64", "pattern like block:64x64: wanted height and width from 1, got '64'"),
        ("0x64", "pattern like block:64x64: wanted height and width from 1, got '0x64'"),
        ("0:4", "pattern like 2:4: wanted n and m from 1, got '0:4'"),
        ("2:0", "pattern like 2:4: wanted n and m from 1, got '2:0'"),
        ("5:4", "pattern N:M keeps N of M: wanted N <= M, got 5:4"),
        ("atp:128:fast", "wanted height and quantum from 1 and an interval in percent, got '128:fast'"),
        ("atp:128x0", "pattern like atp:128 or atp:128x16x97-103:shuffled: wanted height and quantum from 1"),
        ("atp:128x16x97", "wanted height and quantum from 1 and an interval in percent, got '128x16x97'"),
        ("atp:128x16x101-110", "pattern atp: wanted an interval around 100 %, got 101-110"),
        ("atp-2d:128x16x90-99", "pattern atp-2d: wanted an interval around 100 %, got 90-99"),
        ("vnm:64:1:8", "pattern V:N:M: wanted N = 2 and M from 4, got 1:8"),
        ("vnm:64:2:3", "pattern V:N:M: wanted N = 2 and M from 4, got 2:3"),
        ("vnm:64:2", "pattern like vnm:64:2:8: wanted height and n and m from 1, got '64:2'"),
        ("tile-element:64x0", "pattern like tile-element:128: wanted height and percent from 1, got '64x0'"),
        ("apriori:128x51", "pattern apriori: wanted at most 50 % at either end, got 51"),
        ("dense-block:0", "pattern like dense-block:8: wanted clusters from 1, got '0'"),
        ("dense:3", "pattern like dense: wanted nothing after the name, got '3'"),
    ],
)
def test_strings_that_name_no_pattern(text, message):
    with pytest.raises(BadInput, match=message):
        parse_pattern(text)
