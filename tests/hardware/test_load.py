"""The loader: what it accepts, and one line for each way in which a GPU file can be wrong."""

import copy
import json
import math
import re
import tomllib
from importlib import resources

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import gpu_names, load_gpu
from prunecast.hardware.check import MAY_BE_ZERO, UNITS
from prunecast.hardware.load import parse_spec
from tests.hardware.published import PUBLISHED

NAMES = sorted(PUBLISHED)
ABSENT = (
    *(f"tensor_{dtype}_fma_per_clk_per_sm" for dtype in ("fp16", "bf16", "tf32", "fp8", "int8")),
    *("sparse_tensor_factor", "link_bytes_per_s", "shared_reserved_bytes_per_block"),
    *("l2_line_cycles", "l2_second_line_share", "l2_split_sector_fetched_share", "l2_store_read_share"),
    *("clock_activity_per_l2_byte_per_clk", "clock_activity_per_dram_byte_per_clk"),
)
"""Quantities of which a GPU may have none."""


@pytest.fixture
def document():
    """The H200's file as a dictionary, to be spoilt."""
    file = resources.files("prunecast.hardware") / "data" / "h200-sxm.toml"
    return tomllib.loads(file.read_text())


def write_toml(path, document):
    def text(value):
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return json.dumps(value)

    head = [f"{key} = {text(value)}" for key, value in document.items() if not isinstance(value, dict)]
    body = [
        f"[{json.dumps(key)}]\n" + "\n".join(f"{k} = {text(v)}" for k, v in value.items())
        for key, value in document.items()
        if isinstance(value, dict)
    ]
    path.write_text("\n".join([*head, *body]) + "\n")
    return str(path)


def complaint_of(name_or_path):
    with pytest.raises(BadInput) as caught:
        load_gpu(name_or_path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def complaint(tmp_path, document):
    message = complaint_of(write_toml(tmp_path / "mine.toml", document))
    assert str(tmp_path / "mine.toml") in message
    return message


class TestFindingAGpu:
    def test_names(self):
        assert gpu_names() == NAMES

    @pytest.mark.parametrize("name", NAMES)
    def test_file_and_name_agree(self, name):
        assert load_gpu(name).name == name

    def test_unknown_name_gets_the_nearest_ones(self):
        message = complaint_of("h200")
        assert "'h200'" in message
        assert "nearest: h200-nvl, h200-sxm;" in message

    def test_beginning_of_two_names_gets_both(self):
        nearest = complaint_of("a100").split("nearest: ")[1].split(";")[0].split(", ")
        assert nearest == [name for name in NAMES if name.startswith("a100")]

    def test_misspelt_name(self):
        assert "nearest: rtx-4090, " in complaint_of("rtx4090")

    def test_upper_case_is_near(self):
        assert "nearest: h200-sxm" in complaint_of("H200-SXM")

    @pytest.mark.parametrize("name", ["", "..", "abacus"])
    def test_name_like_no_other_gets_all(self, name):
        assert f"known: {', '.join(NAMES)}" in complaint_of(name)

    def test_path_with_separator(self, tmp_path, document):
        document["name"] = "mine"
        assert load_gpu(write_toml(tmp_path / "mine.txt", document)).name == "mine"

    def test_file_name_in_the_working_directory(self, tmp_path, document, monkeypatch):
        write_toml(tmp_path / "t4.toml", document)
        monkeypatch.chdir(tmp_path)
        assert load_gpu("t4.toml").name == "h200-sxm"
        assert load_gpu("t4").name == "t4"

    def test_missing_file(self, tmp_path):
        path = str(tmp_path / "none.toml")
        assert complaint_of(path) == f"{path}: wanted a GPU file, cannot read it: No such file or directory"

    def test_directory(self, tmp_path):
        assert "wanted a GPU file, got a folder" in complaint_of(f"{tmp_path}/")

    def test_path_with_a_null_byte(self):
        assert "without null characters" in complaint_of("\0.toml")


class TestFileForm:
    def test_not_toml(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_text('{"schema": 1}')
        assert f"{path}: wanted a GPU file in TOML, but: " in complaint_of(str(path))

    def test_not_text(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_bytes(b"\xff\xfe\x00")
        assert f"{path}: wanted a GPU file in TOML, but: " in complaint_of(str(path))

    def test_deeply_nested(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_text("schema = " + "[" * 100_000)
        assert f"{path}: wanted a GPU file in TOML, but: " in complaint_of(str(path))

    def test_empty(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_text("")
        assert complaint_of(str(path)) == f"{path}: schema must be 1, got None"

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
    def test_truncated(self, tmp_path, document, share):
        path = tmp_path / "mine.toml"
        text = (tmp_path / write_toml(path, document)).read_text()
        path.write_text(text[: int(share * len(text))])
        assert str(path) in complaint_of(str(path))

    @pytest.mark.parametrize("schema", [2, "1", 1.0, True, [1]])
    def test_wrong_schema(self, tmp_path, document, schema):
        document["schema"] = schema
        assert f"schema must be 1, got {schema!r}" in complaint(tmp_path, document)

    @pytest.mark.parametrize("key", ["name", "title"])
    @pytest.mark.parametrize("value", [None, "", " ", 7])
    def test_name_and_title_are_texts(self, tmp_path, document, key, value):
        if value is None:
            del document[key]
        else:
            document[key] = value
        assert f"{key} must be a text, got {value!r}" in complaint(tmp_path, document)

    @pytest.mark.parametrize("key", ["name", "title"])
    def test_names_of_two_hundred_characters_are_the_longest(self, tmp_path, document, key):
        document[key] = "x" * 200
        assert load_gpu(write_toml(tmp_path / "mine.toml", document)).sm_count == 132
        for bad in ("x" * 201, "two\nlines"):
            document[key] = bad
            assert f"{key} must be printable and short" in complaint(tmp_path, document)

    @pytest.mark.parametrize("value", [9.0, 90, "90", "9", "sm_90", "9.0a", "0.5"])
    def test_compute_capability(self, tmp_path, document, value):
        document["compute_capability"] = value
        assert f"compute_capability must be a text like '9.0', got {value!r}" in complaint(tmp_path, document)

    def test_missing_compute_capability(self, tmp_path, document):
        del document["compute_capability"]
        assert "compute_capability must be a text like '9.0', got None" in complaint(tmp_path, document)

    def test_missing_quantity(self, tmp_path, document):
        del document["dram_bytes_per_s"]
        assert complaint(tmp_path, document).endswith(": dram_bytes_per_s: quantity is missing")

    def test_unknown_quantity_gets_the_nearest(self, tmp_path, document):
        document["dram_byte_per_s"] = document.pop("dram_bytes_per_s")
        assert "'dram_byte_per_s': unknown quantity; did you mean dram_bytes_per_s?" in complaint(
            tmp_path, document
        )

    def test_unknown_quantity_like_no_other(self, tmp_path, document):
        document["xyzzy"] = 1
        assert complaint(tmp_path, document).endswith("'xyzzy': unknown quantity")

    def test_quantity_without_its_table(self, tmp_path, document):
        document["sm_count"] = 132
        assert "sm_count: wanted a table with value, unit, kind, source, got 132" in complaint(
            tmp_path, document
        )


class TestOneQuantity:
    @pytest.mark.parametrize("key", ["value", "unit", "kind", "source"])
    def test_missing_key(self, tmp_path, document, key):
        del document["dram_bytes_per_s"][key]
        assert complaint(tmp_path, document).endswith(f": dram_bytes_per_s: {key} is missing")

    def test_unknown_key(self, tmp_path, document):
        document["sm_count"]["note"] = "counted twice"
        assert "sm_count: unknown key 'note', wanted value, unit, kind, source" in complaint(
            tmp_path, document
        )

    @pytest.mark.parametrize("unit", ["GB/s", "Byte/s", "", 1])
    def test_wrong_unit(self, tmp_path, document, unit):
        document["dram_bytes_per_s"]["unit"] = unit
        assert f"dram_bytes_per_s: unit must be 'byte/s', got {unit!r}" in complaint(tmp_path, document)

    @pytest.mark.parametrize("kind", ["memory", "", 1, ["guess"]])
    def test_wrong_kind(self, tmp_path, document, kind):
        document["sm_count"]["kind"] = kind
        wanted = f"sm_count: kind must be one of datasheet, measured, fitted, guess, got {kind!r}"
        assert wanted in complaint(tmp_path, document)

    @pytest.mark.parametrize("source", ["", "  ", 2024])
    def test_empty_source(self, tmp_path, document, source):
        document["sm_count"]["source"] = source
        wanted = f"sm_count: source must name a document or a measurement, got {source!r}"
        assert wanted in complaint(tmp_path, document)

    @pytest.mark.parametrize("value", ["132", True, [132]])
    def test_value_that_is_no_number(self, tmp_path, document, value):
        document["sm_count"]["value"] = value
        assert f"sm_count: value must be a number, got {value!r}" in complaint(tmp_path, document)

    @pytest.mark.parametrize("quantity", ["sm_count", "max_clock_hz"])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e18, 10**400])
    def test_value_beyond_all_sense(self, tmp_path, document, quantity, value):
        document[quantity]["value"] = value
        wanted = f"{quantity}: value must be finite and below 1e+18, got "
        assert wanted in complaint(tmp_path, document)

    @pytest.mark.parametrize(
        "quantity", ["sm_count", "max_clock_hz", "dram_latency_cycles", "graph_launch_s"]
    )
    @pytest.mark.parametrize("value", [0, -1])
    def test_value_must_be_positive(self, tmp_path, document, quantity, value):
        document[quantity]["value"] = value
        assert f"{quantity}: value must be above 0, got {value}" in complaint(tmp_path, document)

    @pytest.mark.parametrize("quantity", ABSENT)
    def test_zero_means_that_there_is_none(self, tmp_path, document, quantity):
        document.setdefault(quantity, {**document["sm_count"], "unit": UNITS[quantity]})["value"] = 0
        assert getattr(load_gpu(write_toml(tmp_path / "mine.toml", document)), quantity) == 0
        document[quantity]["value"] = -1
        assert f"{quantity}: value must be 0 or more, got -1" in complaint(tmp_path, document)

    @pytest.mark.parametrize("quantity", sorted({*UNITS} - {*ABSENT}))
    def test_every_other_quantity_is_above_zero(self, tmp_path, document, quantity):
        if isinstance(document[quantity]["value"], list):
            document[quantity]["value"][-1] = 0
        else:
            document[quantity]["value"] = 0
        assert f"{quantity}: " in complaint(tmp_path, document)

    def test_fraction_of_a_count(self, tmp_path, document):
        document["sm_count"]["value"] = 131.5
        assert "sm_count: value must be a whole number, got 131.5" in complaint(tmp_path, document)

    def test_whole_floats_count(self, tmp_path, document):
        document["l2_usable_bytes"]["value"] = 40e6
        value = load_gpu(write_toml(tmp_path / "mine.toml", document)).l2_usable_bytes
        assert (value, type(value)) == (40_000_000, int)

    @pytest.mark.parametrize("value", [1.98e9, [], [1.98e9], "fast"])
    def test_clock_table_needs_two_points(self, tmp_path, document, value):
        document["clock_burst_hz"]["value"] = value
        wanted = f"clock_burst_hz: value must be a list of two or more numbers, got {value!r}"
        assert wanted in complaint(tmp_path, document)

    def test_clock_table_holds_numbers(self, tmp_path, document):
        document["clock_activity"]["value"] = ["idle", "busy"]
        assert "clock_activity: value must be a number, got 'idle'" in complaint(tmp_path, document)


class TestQuantitiesTogether:
    @pytest.mark.parametrize(
        ("quantity", "value", "cause"),
        [
            ("l2_usable_bytes", 62_914_561, "exceeds l2_bytes, 62914560"),
            ("dram_bytes_per_s", 4.9e12, "exceeds dram_peak_bytes_per_s, 4800000000000.0"),
            ("shared_bytes_per_block", 233_473, "exceeds shared_bytes_per_sm, 233472"),
            ("registers_per_thread", 65_537, "65537 is far from what GPUs have"),
            ("shared_latency_cycles", 283, "exceeds l2_latency_cycles, 282"),
            ("l1_latency_cycles", 283, "exceeds l2_latency_cycles, 282"),
            ("l2_latency_cycles", 801, "exceeds dram_latency_cycles, 800"),
            ("graph_launch_s", 2.5e-6, "exceeds stream_launch_s, 2.4e-06"),
            ("threads_per_block", 2049, "do not fit in 64 warps"),
            ("mma_sync_share", 1.01, "must be at most 1, got 1.01"),
            ("sparse_tensor_factor", 0.5, "must be 0 or at least 1, got 0.5"),
            ("l2_bytes_per_s", 2.5e13, "exceeds 2.40"),
            ("clock_burst_hz", [1.99e9, *[1.5e9] * 5], "1.99e+09 exceeds max_clock_hz, 1.98e+09"),
            ("clock_sustained_hz", [1.7e9, *[1.71e9] * 5], "must not rise with activity"),
            ("clock_burst_hz", [1.5e9] * 5, "has 5 points, clock_activity 6"),
            ("clock_sustained_hz", [1.5e9] * 7, "has 7 points, clock_activity 6"),
            ("clock_activity", [0.1, 0.2, 0.3, 0.3, 0.4, 0.5], "must ascend"),
            ("clock_activity", [0.6, 0.5, 0.4, 0.3, 0.2, 0.1], "must ascend"),
        ],
    )
    def test_contradiction(self, tmp_path, document, quantity, value, cause):
        document[quantity]["value"] = value
        message = complaint(tmp_path, document)
        assert f": {quantity}: " in message
        assert cause in message

    @pytest.mark.parametrize(
        ("quantity", "value"),
        [
            ("l2_usable_bytes", 62_914_560),
            ("dram_bytes_per_s", 4.8e12),
            ("shared_bytes_per_block", 233_472),
            ("shared_latency_cycles", 282),
            ("graph_launch_s", 2.4e-6),
            ("threads_per_block", 2048),
            ("mma_sync_share", 1.0),
            ("sparse_tensor_factor", 0.0),
            ("sparse_tensor_factor", 1.0),
            ("clock_burst_hz", [1.98e9] * 6),
        ],
    )
    def test_a_value_at_its_limit_contradicts_nothing(self, tmp_path, document, quantity, value):
        document[quantity]["value"] = value
        spec = load_gpu(write_toml(tmp_path / "mine.toml", document))
        assert getattr(spec, quantity) == (tuple(value) if isinstance(value, list) else value)


class TestFingerprint:
    def test_form(self):
        assert re.fullmatch("[0-9a-f]{16}", load_gpu("h200-sxm").fingerprint)

    def test_all_gpus_differ(self):
        assert len({load_gpu(name).fingerprint for name in NAMES}) == len(NAMES)

    def test_sources_and_names_do_not_count(self, tmp_path, document):
        document["name"] = document["title"] = "mine"
        document["sm_count"] |= {"source": "counted", "kind": "guess"}
        mine = load_gpu(write_toml(tmp_path / "mine.toml", document))
        assert mine.fingerprint == load_gpu("h200-sxm").fingerprint

    @pytest.mark.parametrize(
        ("quantity", "value"), [("sm_count", 131), ("clock_activity", [0.1, 0.7, 0.8, 0.9, 0.97, 1.31])]
    )
    def test_values_count(self, tmp_path, document, quantity, value):
        document[quantity]["value"] = value
        mine = load_gpu(write_toml(tmp_path / "mine.toml", document))
        assert mine.fingerprint != load_gpu("h200-sxm").fingerprint

    def test_compute_capability_counts(self, tmp_path, document):
        document["compute_capability"] = "10.0"
        mine = load_gpu(write_toml(tmp_path / "mine.toml", document))
        assert mine.compute_capability == 100
        assert mine.fingerprint != load_gpu("h200-sxm").fingerprint


def test_a_spec_is_its_own_deep_copy():
    gpu = load_gpu("h200-sxm")
    assert copy.deepcopy({"gpu": gpu})["gpu"] is gpu


ABSURD = (
    "inf",
    "-inf",
    "nan",
    "1e300",
    "1e-300",
    "1" + "0" * 400,
    "-1",
    "true",
    "'x'",
    "[]",
    "[1.0, inf]",
    "[nan, 1.0]",
)


@pytest.mark.parametrize("base", ["h200-sxm", "a40"])
def test_no_quantity_of_a_file_may_be_absurd(base):
    """Whole files and files with `like`, whose own numbers scale those that are carried over."""
    text = (resources.files("prunecast.hardware") / "data" / f"{base}.toml").read_text()
    quantities = [name for name, entry in tomllib.loads(text).items() if isinstance(entry, dict)]
    assert "l2_bytes" in quantities
    for quantity in quantities:
        for value in ABSURD:
            if value == "1e-300" and quantity in MAY_BE_ZERO:
                continue
            changed, count = re.subn(
                rf"(?ms)^\[{quantity}\]\nvalue = .*?\n(?=unit)", f"[{quantity}]\nvalue = {value}\n", text
            )
            assert count == 1
            with pytest.raises(BadInput, match=rf"mine\.toml: {quantity}: "):
                parse_spec(changed.encode(), "mine.toml")
