import math
from pathlib import Path

import pytest

from prunecast.codesign.provenance import json_text, read_document
from prunecast.errors import BadInput
from prunecast.files import write_text_aside


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.json"
    write_text_aside(path, json_text({"schema_version": 1, "predictions": [], "name": "ä"}))
    assert read_document(path, key="predictions")["name"] == "ä"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_no_number_that_json_lacks(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"seconds": number})


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(BadInput, match="No space left on device"):
        write_text_aside(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must be JSON"),
        ("[1]", "JSON object with 'predictions'"),
        ('{"schema_version": 1}', "JSON object with 'predictions'"),
        ('{"schema_version": 2, "predictions": []}', "schema_version must be 1, got 2"),
        ('{"predictions": []}', "schema_version must be 1, got None"),
        ('{"schema_version": 1, "predictions": [NaN]}', "NaN is no number"),
        ("[" * 100000, "must be JSON"),
    ],
)
def test_other_files_are_refused(tmp_path, text, complaint):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=complaint):
        read_document(path, key="predictions")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"no.json: wanted .*: No such file"):
        read_document(tmp_path / "no.json", key="predictions")
