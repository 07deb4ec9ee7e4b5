import numpy as np
import pytest
from scipy import io, sparse

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import read_weights

BANNER = "%%MatrixMarket matrix"


def layer_of(tmp_path, text):
    (tmp_path / "fc.mtx").write_text(text)
    return read_weights(tmp_path / "fc.mtx").layers["fc"]


def test_stored_entries_are_the_mask_zeros_among_them(tmp_path):
    layer = layer_of(tmp_path, f"{BANNER} coordinate real general\n2 3 3\n1 1 0\n2 3 -1.5\n1 2 4\n")
    np.testing.assert_array_equal(layer.weights, [[0, 4, 0], [0, 0, -1.5]])
    np.testing.assert_array_equal(layer.kept, [[True, True, False], [False, False, True]])
    assert (layer.dtype, layer.weights.dtype) == ("fp32", np.float32)
    pattern = parse_pattern("zeros")
    assert list(pattern.map(pattern.prune({"fc": layer.kept})["fc"]).kept_per_row) == [2, 1]


def test_repeated_entries_add_up(tmp_path):
    layer = layer_of(tmp_path, f"{BANNER} coordinate real general\n1 2 2\n1 2 1.5\n1 2 2\n")
    np.testing.assert_array_equal(layer.weights, [[0, 3.5]])


def test_patterns_and_symmetric_matrices(tmp_path):
    layer = layer_of(tmp_path, f"{BANNER} coordinate pattern symmetric\n2 2 1\n2 1\n")
    np.testing.assert_array_equal(layer.weights, [[0, 1], [1, 0]])


def test_what_scipy_writes_comes_back(tmp_path):
    matrix = sparse.random_array((20, 30), density=0.2, rng=3)
    io.mmwrite(tmp_path / "fc.mtx", matrix)
    layer = read_weights(tmp_path / "fc.mtx").layers["fc"]
    np.testing.assert_array_equal(layer.weights, matrix.toarray().astype(np.float32))


def test_array_files_are_plain_matrices(tmp_path):
    layer = layer_of(tmp_path, f"{BANNER} array integer general\n2 2\n1\n0\n3\n4\n")
    np.testing.assert_array_equal(layer.weights, [[1, 3], [0, 4]])
    np.testing.assert_array_equal(layer.kept, [[True, True], [False, True]])


def test_symmetric_array_files_hold_half_the_entries(tmp_path):
    size = 40
    numbers = "0\n" * (size * (size + 1) // 2 - 1) + "7\n"
    layer = layer_of(tmp_path, f"{BANNER} array integer symmetric\n{size} {size}\n{numbers}")
    assert layer.weights.sum() == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("hello\n", "cannot be read"),
        (f"{BANNER} coordinate real general\n3 3 3\n1 1 0\n", "cannot be read: Truncated file"),
        (f"{BANNER} coordinate real general\n3 3 1\n9 1 0\n", "cannot be read: .*out of bounds"),
        (
            f"{BANNER} coordinate real general\n3 3 1\n1 1 x\n",
            "cannot be read: .*Invalid floating-point value",
        ),
        (
            f"{BANNER} coordinate complex general\n1 1 1\n1 1 2 3\n",
            "wanted real values, got a complex matrix",
        ),
        (
            f"{BANNER} coordinate real general\n3000000000 3000000000 1\n1 1 1\n",
            "wanted a matrix of 1 to 2147483647 elements, got 3000000000x3000000000",
        ),
        (
            f"{BANNER} coordinate real general\n40000 40000 1000000000\n1 1 1\n",
            "cut off: its header asks for 1000000000 entries",
        ),
        (
            f"{BANNER} coordinate real general\n1 1 1\n1 1 1e300\n",
            "tensor 'fc' holds 1 NaN or Inf among 1 weights",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(BadInput, match=f"fc.mtx: .*{message}") as caught:
        layer_of(tmp_path, text)
    assert "\n" not in str(caught.value)
