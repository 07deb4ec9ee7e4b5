import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights


def layer_of(tmp_path, text):
    (tmp_path / "fc.smtx").write_text(text)
    return read_weights(tmp_path / "fc.smtx").layers["fc"]


def test_kept_places_read_as_ones(tmp_path):
    layer = layer_of(tmp_path, "3, 4, 4\n0 2 2 4 \n0 3 1 2 \n")
    np.testing.assert_array_equal(layer.weights, [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]])
    np.testing.assert_array_equal(layer.kept, layer.weights.astype(bool))
    assert layer.dtype == "fp32"


def test_a_pattern_without_entries(tmp_path):
    assert not layer_of(tmp_path, "2, 2, 0\n0 0 0\n\n").kept.any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wanted 3 numbers in its header, got 0"),
        ("3, 4\n", "wanted 3 numbers in its header, got 2"),
        ("a, b, c\n", "its header hold something else than whole numbers"),
        ("3, 4, 4\n0 2 2\n", "wanted 4 numbers in its row offsets, got 3"),
        ("3, 4, 4\n0 2 2 4\n0 3 1\n", "wanted 4 numbers in its columns, got 3"),
        ("3, 4, 4\n0 2 1 4\n0 3 1 2\n", "offsets must rise from 0 to 4"),
        ("3, 4, 4\n0 2 2 3\n0 3 1 2\n", "offsets must rise from 0 to 4"),
        ("3, 4, 4\n0 2 2 4\n0 4 1 2\n", r"columns must lie in \[0, 4\), got 0 to 4"),
        ("3, 4, 4\n0 2 2 4\n0 -1 1 2\n", r"columns must lie in \[0, 4\), got -1 to 2"),
        ("3, 4, 4\n0 2 2 4\n0 3 1 1\n", "a column is there twice in one row"),
        ("3, 4, 4\n0 2 2 4\n0 3 1 2\n5\n", "wanted three lines, got b'5' after them"),
        ("3, 4, 4\n0 2 2 4\n0 1.5 1 2\n", "its columns hold something else than whole numbers"),
        (f"{2**40}, {2**40}, 4\n", "wanted a matrix of 1 to 2147483647 elements"),
        ("-3, -4, 4\n", "wanted a matrix of 1 to 2147483647 elements, got -3x-4"),
    ],
)
def test_files_that_are_no_smtx(tmp_path, text, message):
    with pytest.raises(BadInput, match=f"fc.smtx: .*{message}"):
        layer_of(tmp_path, text)
