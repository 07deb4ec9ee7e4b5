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
        ("", "unknown pattern ''; known: dense, unstructured, block:64x64, 2:4, tile-wise:128"),
        ("tile-wise:0", "pattern like tile-wise:128: wanted height from 1, got '0'"),
        ("tile-wise", "pattern like tile-wise:128: wanted height from 1, got ''"),
        ("tile-wise:-4", "wanted height from 1, got '-4'"),
        ("tile-wise:1.5", "wanted height from 1, got '1.5'"),
        ("block:64", "pattern like block:64x64: wanted height and width from 1, got '64'"),
        ("0x64", "pattern like block:64x64: wanted height and width from 1, got '0x64'"),
        ("0:4", "pattern like 2:4: wanted n and m from 1, got '0:4'"),
        ("2:0", "pattern like 2:4: wanted n and m from 1, got '2:0'"),
        ("5:4", "pattern N:M keeps N of M: wanted N <= M, got 5:4"),
        ("dense:3", "pattern like dense: wanted nothing after the name, got '3'"),
    ],
)
def test_strings_that_name_no_pattern(text, message):
    with pytest.raises(BadInput, match=message):
        parse_pattern(text)
