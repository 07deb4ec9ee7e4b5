import io
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
from scipy import sparse

from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights

WEIGHTS = np.random.default_rng(2).standard_normal((4, 6)).astype(np.float32)


@pytest.mark.parametrize(("dtype", "name"), [(np.float16, "fp16"), (np.float32, "fp32"), (">f4", "fp32")])
def test_npy_is_one_layer_named_after_its_file(tmp_path, dtype, name):
    np.save(tmp_path / "fc.npy", WEIGHTS.astype(dtype))
    layer = read_weights(tmp_path / "fc.npy").layers["fc"]
    assert (layer.name, layer.dtype, layer.stored) == ("fc", name, None)
    assert layer.weights.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(layer.weights, WEIGHTS.astype(dtype))


def test_column_major_arrays_become_row_major(tmp_path):
    np.save(tmp_path / "fc.npy", np.asfortranarray(WEIGHTS))
    layer = read_weights(tmp_path / "fc.npy").layers["fc"]
    assert layer.weights.flags.c_contiguous
    np.testing.assert_array_equal(layer.weights, WEIGHTS)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_holds_many(tmp_path, save):
    save(tmp_path / "model.npz", **{"a.weight": WEIGHTS, "a.bias": WEIGHTS[0], "steps": np.array(3)})
    source = read_weights(tmp_path / "model.npz")
    assert (list(source.layers), source.vectors) == (["a.weight"], 2)
    np.testing.assert_array_equal(source.layers["a.weight"].weights, WEIGHTS)


def test_convolutions_are_reshaped_and_odd_shapes_left_out(tmp_path):
    conv = np.arange(2 * 3 * 2 * 2, dtype=np.float32).reshape(2, 3, 2, 2)
    np.savez(tmp_path / "model.npz", conv=conv, odd=np.ones((2, 2, 2), np.float32), empty=np.ones((0, 4)))
    source = read_weights(tmp_path / "model.npz")
    layer = source.layers["conv"]
    assert layer.note == "conv 2x3x2x2 reshaped to 2x12"
    np.testing.assert_array_equal(layer.weights, conv.reshape(2, 12))
    assert dict(source.skipped) == {
        "odd": "tensor that is not 2-D (shape 2x2x2)",
        "empty": "tensor of 0 elements, wanted 1 to 2147483647",
    }


CSR = sparse.csr_array((np.array([0.0, 2.5]), np.array([1, 0]), np.array([0, 1, 2])), shape=(2, 3))


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_sparse_npz_of_scipy_states_its_own_mask(tmp_path, layout):
    sparse.save_npz(tmp_path / "fc.npz", CSR.asformat(layout))
    layer = read_weights(tmp_path / "fc.npz").layers["fc"]
    np.testing.assert_array_equal(layer.kept, [[False, True, False], [True, False, False]])
    np.testing.assert_array_equal(layer.weights, [[0, 0, 0], [2.5, 0, 0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indptr": [0, 10**9, 2]}, "offsets must rise from 0 to 2"),
        ({"indptr": [0, 1, 9]}, "offsets must rise from 0 to 2"),
        ({"indptr": [0, 2]}, "wanted 3 offsets, got 2"),
        ({"indices": [3, 0]}, r"columns must lie in \[0, 3\), got 0 to 3"),
        ({"indices": [-1, 0]}, r"columns must lie in \[0, 3\), got -1 to 0"),
        ({"indices": [0.5, 0]}, "rows, columns and values of the entries do not belong together"),
        ({"indices": [0]}, "rows, columns and values of the entries do not belong together"),
        ({"shape": [2**40, 2**40]}, "wanted a matrix of 1 to 2147483647 elements"),
        ({"shape": [2, 3, 4]}, "cannot be read: too many values"),
        ({"data": [1j, 2]}, "wanted real values as csr, csc or coo, got complex128 as 'csr'"),
        ({"format": "dia"}, "wanted real values as csr, csc or coo, got float64 as 'dia'"),
    ],
)
def test_sparse_npz_that_does_not_hold_together(tmp_path, change, message):
    parts = {"format": "csr", "shape": [2, 3], "data": [0.0, 2.5], "indices": [1, 0], "indptr": [0, 1, 2]}
    np.savez(tmp_path / "fc.npz", **(parts | change))
    with pytest.raises(BadInput, match=f"fc.npz: .*({message})"):
        read_weights(tmp_path / "fc.npz")


def test_fp64_beyond_fp32_is_too_large(tmp_path):
    np.save(tmp_path / "fc.npy", np.array([[1e39, 1.0]]))
    with pytest.raises(BadInput, match=r"tensor 'fc' holds 1 weights above 3\.4e\+38 among 2 weights"):
        read_weights(tmp_path / "fc.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3, np.float32), r"tensor that is not 2-D \(shape 3\): 'fc'"),
        (np.float32(3), r"tensor that is not 2-D \(shape scalar\): 'fc'"),
        (np.ones((2, 2), np.int64), "tensor of dtype int64, wanted fp16, bf16 or fp32: 'fc'"),
        (np.ones((2, 2)).astype(ml_dtypes.bfloat16), "bf16 loses its type in numpy files: use safetensors"),
        (np.array([[{}]], dtype=object), r"pickled data is refused \(dtype object\)"),
    ],
)
def test_arrays_that_are_no_weight_matrix(tmp_path, array, message):
    np.save(tmp_path / "fc.npy", array, allow_pickle=True)
    with pytest.raises(BadInput, match=f"fc.npy: .*{message}"):
        read_weights(tmp_path / "fc.npy")


def test_pickled_arrays_in_npz_are_refused_by_name(tmp_path):
    np.savez(tmp_path / "model.npz", w=WEIGHTS, evil=np.array([[{}]], dtype=object))
    with pytest.raises(BadInput, match=r"model.npz: tensor 'evil': pickled data is refused"):
        read_weights(tmp_path / "model.npz")


def test_a_header_that_claims_more_than_the_file_holds_is_not_allocated(tmp_path):
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824, 1073741824), }\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 64
    (tmp_path / "fc.npy").write_bytes(content)
    with pytest.raises(BadInput, match=f"fc.npy: cut off: its header asks for {2**62} bytes, 64 follow"):
        read_weights(tmp_path / "fc.npy")
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("fc.npy", content)
    with pytest.raises(BadInput, match=f"m.npz: tensor 'fc': cut off: its header asks for {2**62} bytes"):
        read_weights(tmp_path / "m.npz")


@pytest.mark.parametrize("size", [0, 4, 40, 150])
def test_truncated_npy(tmp_path, size):
    np.save(tmp_path / "fc.npy", WEIGHTS)
    (tmp_path / "fc.npy").write_bytes((tmp_path / "fc.npy").read_bytes()[:size])
    with pytest.raises(BadInput, match=r"fc.npy: "):
        read_weights(tmp_path / "fc.npy")


@pytest.mark.parametrize("size", [0, 4, 200])
def test_truncated_npz(tmp_path, size):
    np.savez(tmp_path / "m.npz", w=WEIGHTS)
    (tmp_path / "m.npz").write_bytes((tmp_path / "m.npz").read_bytes()[:size])
    with pytest.raises(BadInput, match=r"m.npz: cannot be read: File is not a zip file"):
        read_weights(tmp_path / "m.npz")


def test_a_damaged_member_is_named(tmp_path):
    np.savez(tmp_path / "m.npz", w=WEIGHTS)
    content = bytearray((tmp_path / "m.npz").read_bytes())
    content[content.index(WEIGHTS.tobytes()) + 5] ^= 0xFF
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"m.npz: tensor 'w': cannot be read: Bad CRC-32"):
        read_weights(tmp_path / "m.npz")


def test_wrong_magic(tmp_path):
    (tmp_path / "fc.npy").write_bytes(b"PK not numpy at all")
    with pytest.raises(BadInput, match=r"fc.npy: cannot be read: the magic string is not correct"):
        read_weights(tmp_path / "fc.npy")


def test_an_npz_without_matrices_says_what_it_has(tmp_path):
    np.savez(tmp_path / "m.npz", bias=np.ones(3), norm=np.ones(2), q=np.ones((2, 2), np.int8))
    with pytest.raises(
        BadInput,
        match=r"m.npz: wanted at least one matrix of floats, got 2 vectors and 1 other tensors; .q.: tensor",
    ):
        read_weights(tmp_path / "m.npz")


def error_of(path):
    try:
        read_weights(path)
    except BadInput as error:
        return str(error)
    return None


def test_random_damage_is_one_line_of_error_or_still_a_matrix(tmp_path):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, w=WEIGHTS, v=WEIGHTS[:2])
    random = np.random.default_rng(5)
    for case in range(150):
        content = bytearray(buffer.getvalue())
        for place in random.integers(0, len(content), 3):
            content[place] = random.integers(0, 256)
        path = tmp_path / f"m{case}.npz"
        path.write_bytes(content)
        message = error_of(path)
        assert message is None or (message.startswith(str(path)) and "\n" not in message)


def test_bytes_after_the_data_are_refused(tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, np.eye(4, dtype=np.float32))
        np.save(file, np.eye(2, dtype=np.float32))
    with pytest.raises(BadInput, match=r"a.npy: too long: its header asks for 64 bytes, \d+ follow"):
        read_weights(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(tmp_path / "a.npy", "fc.npy")
    with pytest.raises(BadInput, match=r"a.npz: tensor 'fc': too long: its header asks for 64 bytes"):
        read_weights(tmp_path / "a.npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(4, dtype=np.float32))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(tmp_path / "a.npy", "fc.npy")
        archive.write(tmp_path / "a.npy", "fc.npy")
    with pytest.raises(BadInput, match=r"a.npz: two members are called 'fc.npy'"):
        read_weights(tmp_path / "a.npz")
