"""A table of predictions as text, as a short name, and as a DataFrame."""

import numpy as np
import pytest

import prunecast


@pytest.fixture(scope="module")
def table():
    weights = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float16)
    named = {"a": weights, "long\x1b[31m": weights}
    return prunecast.predict(named, gpu="h200-sxm", tokens=64, engine="model", crossovers=False)


def test_print_shows_a_table(table):
    lines = str(table).splitlines()
    assert len(lines) == len(table) + 2
    assert lines[0].split()[:5] == ["layer", "M", "K", "N", "kernel"]
    assert lines[1].split()[:5] == ["a", "128", "128", "64", "dense"]
    assert "\x1b" not in str(table)
    assert max(map(len, lines)) < 160
    assert repr(table).startswith("<PredictionTable of 2 layers on h200-sxm, ")


def test_a_frame_has_the_rows(table):
    pytest.importorskip("pandas")
    assert list(table.to_dataframe()["seconds"]) == [row.seconds for row in table]


def test_a_sweep_from_python(tmp_path):
    options = {"shapes": [(64, 64, 64)], "patterns": ["tile-wise:64"], "sparsities": [0.5], "workers": 1}
    rows = prunecast.sweep(tmp_path / "s.sqlite", **options)
    assert rows
    assert prunecast.sweep(tmp_path / "s.sqlite", **options) == rows


def test_a_report_from_python(tmp_path):
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    found = prunecast.write_report(
        {"a": weights}, tmp_path / "r.html", gpu="h200-sxm", tokens=64, engine="model", crossovers=False
    )
    assert "</html>" in (tmp_path / "r.html").read_text()
    assert len(list(found.layers())) == 1
