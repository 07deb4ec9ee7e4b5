import numpy as np
import pytest
from scipy import io, sparse

from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.sources import matrix_market, read_weights

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


def test_array_files_are_plain_matrices(tmp_path):
    layer = layer_of(tmp_path, f"{BANNER} array integer general\n2 2\n1\n0\n3\n4\n")
    np.testing.assert_array_equal(layer.weights, [[1, 3], [0, 4]])
    np.testing.assert_array_equal(layer.kept, [[True, True], [False, True]])


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("layout", ["coordinate", "array"])
def test_what_scipy_writes_comes_back(tmp_path, layout, symmetry):
    square = np.random.default_rng(3).integers(-3, 4, (9, 9)).astype(np.float64)
    matrix = {"general": square[:, :5], "symmetric": square + square.T, "skew-symmetric": square - square.T}[
        symmetry
    ]
    stored = sparse.coo_array(matrix) if layout == "coordinate" else matrix
    io.mmwrite(tmp_path / "fc.mtx", stored, comment="two\nlines", symmetry=symmetry)
    layer = read_weights(tmp_path / "fc.mtx").layers["fc"]
    np.testing.assert_array_equal(layer.weights, matrix)
    np.testing.assert_array_equal(layer.kept, matrix != 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "wanted a first line `%%MatrixMarket matrix ...`, got b''"),
        ("hello\n", "wanted a first line"),
        (f"{BANNER} coordinate real\n", "wanted a first line"),
        (
            f"{BANNER} coordinate complex general\n1 1 1\n1 1 2 3\n",
            "wanted real or double or .* got 'complex'",
        ),
        (f"{BANNER} coordinate real hermitian\n1 1 1\n1 1 2\n", "wanted general or .* got 'hermitian'"),
        (f"{BANNER} coordinate real general\n% only a comment\n", "cut off: no line of sizes"),
        (f"{BANNER} coordinate real general\n3 3\n", "wanted 3 sizes, got b'3 3"),
        (f"{BANNER} array real general\n3 -3\n", "wanted 2 sizes, got b'3 -3"),
        (f"{BANNER} coordinate real symmetric\n2 3 0\n", "a symmetric matrix must be square, got 2x3"),
        (f"{BANNER} coordinate real general\n3 3 3\n1 1 0\n", "cut off or too long: wanted 9 numbers, got 3"),
        (
            f"{BANNER} array real general\n2 2\n1\n2\n3\n4\n5\n",
            "cut off or too long: wanted 4 numbers, got 5",
        ),
        (f"{BANNER} array real symmetric\n2 2\n1\n2\n", "cut off or too long: wanted 3 numbers, got 2"),
        (f"{BANNER} array pattern general\n1 1\n", "an array file has values, got 'pattern'"),
        (f"{BANNER} coordinate real general\n3 3 1\n9 1 0\n", "wanted a row in 1 to 3, got 9"),
        (f"{BANNER} coordinate real general\n3 3 1\n1 0 0\n", "wanted a column in 1 to 3, got 0"),
        (f"{BANNER} coordinate real general\n3 3 1\n1 1.5 0\n", "wanted a column in 1 to 3, got 1.5"),
        (f"{BANNER} coordinate real general\n3 3 1\nnan 1 0\n", "wanted a row in 1 to 3, got nan"),
        (f"{BANNER} coordinate real general\n3 3 1\n1 1 x\n", "cannot be read: could not convert string"),
        (
            f"{BANNER} coordinate real general\n3000000000 3000000000 1\n1 1 1\n",
            "wanted a matrix of 1 to 2147483647 elements, got 3000000000x3000000000",
        ),
        (
            f"{BANNER} coordinate real general\n1 1 {10**17}\n1 1 1\n",
            "wanted 300000000000000000 numbers, got 3",
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


@pytest.mark.parametrize("piece", range(1, 12))
def test_numbers_are_the_same_wherever_a_piece_of_the_file_ends(piece, tmp_path, monkeypatch):
    monkeypatch.setattr(matrix_market, "PIECE", piece)
    layer = layer_of(tmp_path, f"{BANNER} array real general\n2 2\n10\n 2.5\n\n-3e1 44")
    np.testing.assert_array_equal(layer.weights, [[10, -30], [2.5, 44]])


@pytest.mark.parametrize(("letters", "is_read"), [(1000, True), (1001, False)])
def test_a_number_has_up_to_a_thousand_letters(tmp_path, letters, is_read):
    path = tmp_path / "w.mtx"
    path.write_text("%%MatrixMarket matrix array real general\n1 1\n" + "0.5".ljust(letters, "0"))
    if is_read:
        assert read_weights(path).layers["w"].weights.tolist() == [[0.5]]
    else:
        with pytest.raises(BadInput, match="wanted numbers, got a word of 1000 letters or more"):
            read_weights(path)
