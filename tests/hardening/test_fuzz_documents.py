"""Hostile GPU specs, suites, records, recipes, sweep files, tile maps: BadInput and no traceback."""

import sqlite3
from importlib import resources

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prunecast.codesign.provenance import read_document
from prunecast.codesign.sweep import SweepStore
from prunecast.codesign.tile_maps import read_tile_maps, write_tile_maps
from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap
from prunecast.validation.derive_spec import read_raw
from prunecast.validation.records import read_runs
from prunecast.validation.suite import load_suite
from prunecast.validation.validate import bundled_records

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)

SPEC = (resources.files("prunecast.hardware") / "data" / "h200-sxm.toml").read_bytes()
SUITE = b"""schema = 1
name = "s"
[[case]]
m = 64
k = 64
n = 8
pattern = "dense"
kernels = ["dense"]
[[product]]
shapes = [[64, 64]]
n = [8]
pattern = ["tile-wise:128"]
sparsity = [0.5]
kernels = ["stspmm"]
keep_one_in = 2
"""
with open(bundled_records()[0], "rb") as record:
    LINES = record.readlines()
FIRST_ROW = 1 + next(number for number, line in enumerate(LINES) if line.startswith(b"run,"))
RECORD = b"".join([*LINES[:FIRST_ROW], *LINES[FIRST_ROW : FIRST_ROW + 3]])
DOCUMENT = b'{"schema_version": 1, "predictions": []}'


def document(path):
    return read_document(path, key="predictions")


def stored_rows(path):
    with SweepStore(path) as store:
        store.missing([])
        return store.rows()


def write_store(path):
    SweepStore(path).__exit__(None, None, None)


def write_tiles(path):
    tiles = TileMap(
        m=4,
        k=4,
        row_start=[0, 2, 4],
        row_index=[0, 1, 2, 3],
        column_start=[0, 1, 3],
        column_index=[2, 0, 3],
        pattern="tile-wise:2",
    )
    write_tile_maps(path, {"a": tiles})


TEXTS = {
    "a.toml": (load_gpu, SPEC),
    "suite.toml": (load_suite, SUITE),
    "a.csv": (read_runs, RECORD),
    "a.json": (document, DOCUMENT),
    "raw.json": (read_raw, b'{"schema": 1, "raw": {}}'),
}
PIECES = st.binary(min_size=1, max_size=4) | st.sampled_from(
    [
        b"[",
        b"{",
        b'"',
        b"0xfff",
        b"1e999",
        b"nan",
        b"-1",
        b"true",
        b"null",
        b"\xff",
        b"\x00",
        b"[[",
        b"=",
        b"9" * 30,
    ]
)
CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 12), PIECES), max_size=4)


def changed(content, changes):
    for where, cut, piece in changes:
        at = int(where * len(content))
        content = content[:at] + piece + content[at + cut :]
    return content


@pytest.mark.parametrize("name", TEXTS)
@settings(FUZZ, max_examples=500)
@given(changes=CHANGES)
def test_damaged_texts(tmp_path, name, changes, usable_or_refused):
    reader, content = TEXTS[name]
    (tmp_path / name).write_bytes(changed(content, changes))
    usable_or_refused(reader, str(tmp_path / name))


@pytest.mark.parametrize(("write", "reader"), [(write_store, stored_rows), (write_tiles, read_tile_maps)])
@FUZZ
@given(changes=CHANGES)
@pytest.mark.filterwarnings("ignore")  # of zipfile and sqlite about damaged files
def test_damaged_binaries(tmp_path, write, reader, changes, usable_or_refused):
    path = tmp_path / "a.npz"
    path.unlink(missing_ok=True)
    write(path)
    path.write_bytes(changed(path.read_bytes(), changes))
    usable_or_refused(reader, path)


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "[" * 100_000, "null", "\ufeff{}", '{"kind": 1}', ""])
@pytest.mark.parametrize("reader", [read_runs, read_raw, document])
def test_json_that_is_no_object(tmp_path, reader, text):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput):
        reader(tmp_path / "a.json")


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1\ncase = 3",
        "schema = 1\ncase = [1]",
        "schema = 1\nproduct = {a = 1}",
        f"schema = 0x{'f' * 6000}",
        SUITE.decode().replace("m = 64", f"m = 0x{'f' * 6000}"),
        SUITE.decode().replace("m = 64", "m = 3000000000"),
        SUITE.decode().replace("n = 8", "n = 8\nseed = -1", 1),
        SUITE.decode().replace("n = 8", "n = 8\nsparsity = nan", 1),
        SUITE.decode().replace("keep_one_in = 2", 'keep_one_in = "x"'),
        SUITE.decode().replace("n = [8]", f"n = {[1] * 2000}\nseed = {[1] * 2000}"),
    ],
)
def test_suites_without_sense(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(BadInput) as refused:
        load_suite(str(tmp_path / "a.toml"))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("key", ["schema = 1", 'name = "h200-sxm"', "value = 132"])
def test_numbers_of_thousands_of_digits_in_a_spec(tmp_path, key):
    text = SPEC.decode()
    assert key in text
    (tmp_path / "a.toml").write_text(text.replace(key, f"{key.split()[0]} = 0x{'f' * 6000}", 1))
    with pytest.raises(BadInput, match=r"thousands of digits|must be"):
        load_gpu(str(tmp_path / "a.toml"))


def test_a_view_in_a_sweep_file_is_not_run(tmp_path):
    write_store(tmp_path / "a.sqlite")
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("CREATE TRIGGER t AFTER INSERT ON results BEGIN DELETE FROM results; END")
    connection.commit()
    connection.close()
    with pytest.raises(BadInput, match="sweep results"):
        SweepStore(tmp_path / "a.sqlite")


def test_values_of_a_sweep_file_are_checked(tmp_path):
    write_store(tmp_path / "a.sqlite")
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("INSERT INTO results (key, m) VALUES ('k', x'00ff')")
    connection.commit()
    connection.close()
    with SweepStore(tmp_path / "a.sqlite") as store, pytest.raises(BadInput, match="of a result must be"):
        store.rows()


def test_tile_maps_are_no_pickles_and_no_other_file(tmp_path):
    np.savez(tmp_path / "a.npz", **{"a/shape": np.array([{}], dtype=object)})
    np.save(tmp_path / "b.npy", np.zeros((2, 2)))
    for name in ("a.npz", "b.npy", "none.npz"):
        with pytest.raises(BadInput):
            read_tile_maps(tmp_path / name)


def test_tile_maps_come_back_and_wrong_types_do_not(tmp_path):
    write_tiles(tmp_path / "a.npz")
    assert read_tile_maps(tmp_path / "a.npz")["a"].mask().sum() == 6
    arrays = dict(np.load(tmp_path / "a.npz"))
    np.savez(tmp_path / "b.npz", **(arrays | {"a/row_index": np.array([2**32, 1, 2, 3])}))
    with pytest.raises(BadInput, match="int32"):
        read_tile_maps(tmp_path / "b.npz")
