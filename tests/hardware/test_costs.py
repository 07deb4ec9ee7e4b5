from pathlib import Path

import pytest

from prunecast.errors import BadInput
from prunecast.hardware.costs import read_costs

ENTRY = """
[{name}]
value = {value}
unit = "{unit}"
kind = "{kind}"
source = "clock stamps"
date = "{date}"
meaning = "a producer warp before its first index"
"""


def _file(folder: Path, architecture: str, *entries: str) -> None:
    (folder / f"{architecture}.toml").write_text("schema = 1\n" + "".join(entries), encoding="utf-8")


def _entry(
    name: str = "start",
    value: str = "300",
    unit: str = "cycle",
    kind: str = "fitted",
    date: str = "2026-11-22",
) -> str:
    return ENTRY.format(name=name, value=value, unit=unit, kind=kind, date=date)


def test_an_architecture_has_its_own_entries(tmp_path: Path) -> None:
    _file(tmp_path, "sm_90", _entry(value="300"))
    costs = read_costs(tmp_path, "tile", 90)
    assert (costs["start"], costs.whole("start"), costs.entries["start"].kind) == (300, 300, "fitted")
    assert (costs.architecture, dict(costs.inherited), costs.guessed_share) == ("sm_90", {}, 0.0)


def test_an_architecture_without_a_file_inherits_guesses(tmp_path: Path) -> None:
    _file(tmp_path, "sm_90", _entry(value="300"))
    costs = read_costs(tmp_path, "tile", 100)
    assert (costs["start"], costs.guessed_share, costs.inherited["start"]) == (300, 1.0, "sm_90")
    assert costs.entries["start"].kind == "guess"
    assert costs.entries["start"].source == "carried over from sm_90, fitted there: clock stamps"


def test_single_entries_are_inherited_too(tmp_path: Path) -> None:
    _file(tmp_path, "sm_90", _entry("start", "300"), _entry("item", "200"))
    _file(tmp_path, "sm_80", _entry("start", "500"))
    costs = read_costs(tmp_path, "tile", 80)
    assert (costs["start"], costs["item"], costs.guessed_share) == (500, 200, 0.5)


@pytest.mark.parametrize(("wanted", "found"), [(75, 70), (86, 80), (89, 80), (100, 90), (120, 90), (72, 70)])
def test_the_same_major_version_is_nearest_then_the_number(tmp_path: Path, wanted: int, found: int) -> None:
    for capability in (70, 80, 90):
        _file(tmp_path, f"sm_{capability}", _entry(value=str(capability)))
    assert read_costs(tmp_path, "tile", wanted)["start"] == found


def test_of_two_equally_near_the_older_is_taken(tmp_path: Path) -> None:
    for capability in (70, 90):
        _file(tmp_path, f"sm_{capability}", _entry(value=str(capability)))
    assert read_costs(tmp_path, "tile", 80)["start"] == 70


def test_equal_values_have_equal_fingerprints(tmp_path: Path) -> None:
    _file(tmp_path, "sm_90", _entry("start"), _entry("item"))
    first = read_costs(tmp_path, "tile", 90).fingerprint
    _file(tmp_path, "sm_90", _entry("item", kind="measured"), _entry("start"))
    assert read_costs(tmp_path, "tile", 90).fingerprint == first
    _file(tmp_path, "sm_90", _entry("item", "301"), _entry("start"))
    assert read_costs(tmp_path, "tile", 90).fingerprint != first


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ("start = 300", "start: wanted a table with value, unit, kind, source, date, meaning, got 300"),
        (_entry(unit="parsec"), "unit must be one of"),
        (_entry(kind="hearsay"), "kind must be one of datasheet, measured, fitted, guess, as-compiled"),
        (_entry(date="yesterday"), "date must be a text like '2026-11-22', got 'yesterday'"),
        (_entry(value="-1"), "value must be 0 or more, got -1"),
        (_entry(value="nan"), "value must be finite"),
        (_entry(value="'much'"), "value must be a number, got 'much'"),
        (_entry(value="1.5", unit="instruction"), "value must be a whole number of instructions, got 1.5"),
        (_entry().replace("meaning", "sense"), "meaning is missing"),
        (_entry() + "colour = 'red'", "unknown key 'colour'"),
        (_entry().replace("clock stamps", " "), "source must be a text"),
        (_entry().replace("[start]", "[start"), "wanted a file of costs in TOML"),
    ],
)
def test_bad_entries_are_refused_in_one_line(tmp_path: Path, entry: str, cause: str) -> None:
    _file(tmp_path, "sm_90", entry)
    with pytest.raises(BadInput) as error:
        read_costs(tmp_path, "tile", 90)
    assert cause in str(error.value)
    assert "tile/costs/sm_90.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_files_without_a_schema_and_with_odd_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sm_90.toml").write_text(_entry(), encoding="utf-8")
    with pytest.raises(BadInput, match="schema must be 1"):
        read_costs(tmp_path, "tile", 90)
    (tmp_path / "hopper.toml").write_text("schema = 1", encoding="utf-8")
    with pytest.raises(BadInput, match="must be named like sm_90"):
        read_costs(tmp_path, "tile", 90)


def test_a_kernel_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is none"):
        read_costs(tmp_path, "tile", 90)
