import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights


def write_raw(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    ("dtype", "name"), [(np.float16, "fp16"), (ml_dtypes.bfloat16, "bf16"), (np.float32, "fp32")]
)
def test_matrices_come_back_in_their_own_type(tmp_path, dtype, name):
    weights = np.random.default_rng(1).standard_normal((5, 7)).astype(dtype)
    save_file({"fc.weight": weights, "fc.bias": weights[0].copy()}, tmp_path / "a.safetensors")
    source = read_weights(tmp_path / "a.safetensors")
    layer = source.layers["fc.weight"]
    assert (layer.dtype, layer.weights.dtype, layer.note) == (name, np.dtype(dtype), None)
    assert layer.weights.tobytes() == weights.tobytes()
    assert (source.vectors, dict(source.skipped)) == (1, {})


def test_layers_keep_the_order_of_the_file(tmp_path):
    header = {
        "b": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},
        "a": {"dtype": "F32", "shape": [1, 1], "data_offsets": [4, 8]},
    }
    source = read_weights(write_raw(tmp_path / "a.safetensors", header, struct.pack("<2f", 1, 2)))
    assert [(name, layer.weights.item()) for name, layer in source.layers.items()] == [("b", 1.0), ("a", 2.0)]


def test_other_types_are_left_out_with_a_reason_unless_named(tmp_path):
    path = tmp_path / "a.safetensors"
    arrays = {"q": np.ones((2, 2), np.int8), "u": np.ones((2, 2), np.uint16)}
    save_file({"w": np.ones((2, 2), np.float32), **arrays}, path)
    assert dict(read_weights(path).skipped) == {
        "q": "tensor of dtype int8, wanted fp16, bf16 or fp32",
        "u": "tensor of dtype uint16, wanted fp16, bf16 or fp32",
    }
    with pytest.raises(
        BadInput, match=r"a.safetensors: tensor of dtype int8, wanted fp16, bf16 or fp32: 'q'"
    ):
        read_weights(path, target="q")


def test_fp64_is_rounded_with_a_note(tmp_path):
    save_file({"w": np.full((2, 2), 0.1)}, tmp_path / "a.safetensors")
    layer = read_weights(tmp_path / "a.safetensors").layers["w"]
    assert (layer.dtype, layer.weights.dtype, layer.note) == ("fp32", np.float32, "fp64 rounded to fp32")


def test_a_header_of_2_to_the_60_bytes_is_an_error_and_not_an_allocation(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(BadInput, match=f"a.safetensors: .* header of {2**60} bytes, file of 10"):
        read_weights(path)


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"no json", "its header is no JSON"),
        (b"\xff\xfe", "its header is no JSON"),
        (b"[" * 100_000, "its header is no JSON"),
        ([], "its header is no JSON object of tensors"),
        ({"w": 3}, "tensor 'w': wanted dtype, shape and data_offsets"),
        ({"w": {"dtype": "F32"}}, "tensor 'w': wanted dtype, shape and data_offsets"),
        ({"w": ENTRY | {"shape": [2, -2]}}, "tensor 'w': shape and data_offsets must be whole numbers"),
        ({"w": ENTRY | {"shape": "22"}}, "tensor 'w': shape and data_offsets must be whole numbers"),
        ({"w": ENTRY | {"shape": [2, 2.0]}}, "tensor 'w': shape and data_offsets must be whole numbers"),
        ({"w": ENTRY | {"data_offsets": [0, 2**60]}}, f"tensor 'w': cut off: its data end at byte {2**60}"),
        ({"w": ENTRY | {"data_offsets": [12, 4]}}, "tensor 'w': cut off"),
        ({"w": ENTRY | {"shape": [2**31, 2**31]}}, "tensor 'w': F32 of shape .* does not fill its 16 bytes"),
        ({"w": ENTRY, "v": ENTRY}, "tensor 'w': cannot be read"),
    ],
)
def test_headers_that_lie(tmp_path, header, message):
    path = write_raw(tmp_path / "a.safetensors", header, b"\0" * 16)
    with pytest.raises(BadInput, match=message) as caught:
        read_weights(path)
    assert "\n" not in str(caught.value)


WHOLE = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
SECOND = WHOLE | {"data_offsets": [16, 32]}
LATE = WHOLE | {"data_offsets": [4, 20]}
TWICE = json.dumps({"w": WHOLE, "v": SECOND}).replace('"v"', '"w"').encode()
UNREADABLE = {
    "a name twice": (TWICE, 32, "'w' is there twice"),
    "a key of an entry twice": (
        json.dumps({"w": WHOLE}).replace('"dtype"', '"dtype": "F16", "dtype"').encode(),
        16,
        "'dtype' is there twice",
    ),
    "half a character": ({"\ud800": WHOLE}, 16, "has half a character"),
    "half a character that files' names may have": ({"\udcff": WHOLE}, 16, "half a character"),
    "a hole before the data": ({"w": LATE}, 20, "bytes 0 to 4, before tensor 'w', belong to no tensor"),
    "a hole": (
        {"w": WHOLE, "v": WHOLE | {"data_offsets": [20, 36]}},
        36,
        "bytes 16 to 20, before tensor 'v', belong to no tensor",
    ),
    "bytes after the data": ({"w": WHOLE}, 17, "wanted 16 bytes of data, as its header says, got 17"),
    "data without a tensor": ({}, 1, "wanted 0 bytes of data"),
    "another size of whole numbers": ({"w": WHOLE | {"dtype": "I16"}}, 16, "I16 of shape .* does not fill"),
}


@pytest.mark.parametrize("why", UNREADABLE)
def test_what_the_reference_library_refuses_is_refused(tmp_path, why):
    header, data_bytes, message = UNREADABLE[why]
    path = write_raw(tmp_path / "a.safetensors", header, bytes(data_bytes))
    with pytest.raises(BadInput, match=f"a.safetensors: .*{message}"):
        read_weights(path)
    with pytest.raises(SafetensorError), safe_open(path, framework="np"):
        pass


@pytest.mark.parametrize("size", [0, 5, 60, 130])
def test_truncated_files(tmp_path, size):
    path = tmp_path / "a.safetensors"
    save_file({"fc.weight": np.ones((4, 4), np.float32)}, path)
    whole = path.read_bytes()
    assert size < len(whole)
    path.write_bytes(whole[:size])
    with pytest.raises(BadInput, match=r"a.safetensors: .*cut off"):
        read_weights(path)


def test_nan_and_inf_are_counted(tmp_path):
    weights = np.ones((3, 3)).astype(ml_dtypes.bfloat16)
    weights.view(np.uint16)[0, 1] = 0x7F81  # a signalling NaN
    weights[2, 2] = -np.inf
    save_file({"fc": weights}, tmp_path / "a.safetensors")
    with pytest.raises(BadInput, match=r"a.safetensors: tensor 'fc' holds 2 NaN or Inf among 9 weights"):
        read_weights(tmp_path / "a.safetensors")
