"""Weights out of ONNX files: every orientation becomes (M, K), and nothing outside of the folder is read."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights
from prunecast.patterns.sources.checkpoint import masked_checkpoint
from tests import onnx_files


def saved(path, made):
    onnx.save(made, path)
    return path


def constants_of(made):
    return {each.name: numpy_helper.to_array(each) for each in made.graph.initializer}


def test_right_operands_are_turned_and_made_up_names_are_those_of_the_nodes(tmp_path):
    made = onnx_files.attention()
    found = read_weights(saved(tmp_path / "a.onnx", made)).layers
    assert tuple(found) == onnx_files.ATTENTION
    stored = constants_of(made)
    np.testing.assert_array_equal(found["wk"].weights, stored["wk"].T)
    np.testing.assert_array_equal(found["layer.q.MatMul"].weights, stored["onnx::MatMul_1"].T)
    assert "stored as (K, M)" in found["wk"].note


@pytest.mark.parametrize(
    ("node", "shape", "turned"),
    [
        (onnx_files.node("Gemm", "x w", "y"), (8, 24), True),
        (onnx_files.node("Gemm", "x w", "y", transB=1), (24, 8), False),
        (onnx_files.node("Gemm", "w x", "y"), (24, 8), False),
        (onnx_files.node("Gemm", "w x", "y", transA=1), (8, 24), True),
        (onnx_files.node("MatMul", "w x", "y"), (24, 8), False),
        (onnx_files.node("MatMul", "x w", "y"), (8, 24), True),
    ],
)
def test_c_is_a_times_b_whatever_the_operator_says(tmp_path, node, shape, turned):
    array = onnx_files.weights(*shape)
    inputs = {"x": [8, 5] if node.input[0] == "w" else [5, 8]}
    found = read_weights(
        saved(tmp_path / "a.onnx", onnx_files.model([node], inputs, "y", {"w": array}))
    ).layers
    np.testing.assert_array_equal(found["w"].weights, array.T if turned else array)


def test_filters_are_filters(tmp_path):
    made = onnx_files.conv_net()
    found = read_weights(saved(tmp_path / "a.onnx", made), ["c1"]).layers["c1"]
    assert found.filters == (16, 3, 3)
    np.testing.assert_array_equal(found.weights, constants_of(made)["c1"].reshape(32, -1))


def test_a_constant_node_is_a_weight_too(tmp_path):
    array = onnx_files.weights(8, 24)
    nodes = [
        onnx_files.node("Constant", "", "w", value=numpy_helper.from_array(array)),
        onnx_files.node("MatMul", "x w", "y"),
    ]
    made = onnx_files.model(nodes, {"x": [5, 8]}, "y", {})
    np.testing.assert_array_equal(read_weights(saved(tmp_path / "a.onnx", made)).layers["w"].weights, array.T)


def test_masks_fit_what_was_read(tmp_path):
    path = saved(tmp_path / "a.onnx", onnx_files.attention())
    mask = np.random.default_rng(0).random((64, 64)) < 0.5
    arrays = masked_checkpoint(path, {"wk": mask}).arrays
    np.testing.assert_array_equal(arrays["wk"] != 0, mask)
    assert (arrays["wv"] != 0).all()


def external(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        onnx_files.attention(),
        folder / "a.onnx",
        save_as_external_data=True,
        location="a.data",
        size_threshold=0,
    )
    made = onnx.load(folder / "a.onnx", load_external_data=False)
    for constant in made.graph.initializer:
        for entry in constant.external_data:
            if entry.key == "location":
                entry.value = location
    (folder / "a.onnx").write_bytes(made.SerializeToString())
    return folder / "a.onnx"


def test_data_beside_the_model_is_found(tmp_path):
    found = read_weights(external(tmp_path, "a.data")).layers
    np.testing.assert_array_equal(found["wk"].weights, constants_of(onnx_files.attention())["wk"].T)


def test_data_without_an_offset_begin_with_their_file(tmp_path):
    path = external(tmp_path, "a.data")
    made = onnx.load(path, load_external_data=False)
    (tensor,) = (each for each in made.graph.initializer if each.name == "wk")
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value="wk.data")
    values = constants_of(onnx_files.attention())["wk"]
    (path.parent / "wk.data").write_bytes(values.tobytes() + bytes(8))
    path.write_bytes(made.SerializeToString())
    np.testing.assert_array_equal(read_weights(path, ["wk"]).layers["wk"].weights, values.T)


@pytest.mark.parametrize("location", ["../a.data", "/etc/passwd", "", "missing.data"])
def test_data_elsewhere_is_refused(tmp_path, location):
    (tmp_path / "a.data").write_bytes(bytes(10**6))
    with pytest.raises(BadInput, match=r"folder|missing or too short"):
        read_weights(external(tmp_path, location))


def test_data_that_claims_more_than_there_is_is_refused(tmp_path):
    path = external(tmp_path, "a.data")
    (path.parent / "a.data").write_bytes(bytes(100))
    with pytest.raises(BadInput, match="too short"):
        read_weights(path)


@pytest.mark.parametrize("dims", [[2**31, 2**31], [-1, 8], [0, 8]])
def test_sizes_that_do_not_fit_their_data_are_refused(tmp_path, dims):
    made = onnx_files.attention()
    del made.graph.initializer[1].dims[:]
    made.graph.initializer[1].dims.extend(dims)
    with pytest.raises(BadInput):
        read_weights(saved(tmp_path / "a.onnx", made), ["wk"])


@pytest.mark.parametrize("content", [b"", b"\x00", b"not a model at all", bytes(1000)])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.onnx"):
        read_weights(tmp_path / "a.onnx")


def test_two_constants_of_one_name_are_refused(tmp_path):
    made = onnx_files.attention()
    made.graph.initializer.append(made.graph.initializer[1])
    with pytest.raises(BadInput, match=r"a\.onnx: two constants are called 'wk'"):
        read_weights(saved(tmp_path / "a.onnx", made))


def test_external_data_of_another_length_is_refused(tmp_path):
    path = external(tmp_path, "a.data")
    made = onnx.load(path, load_external_data=False)
    for tensor in made.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "length":
                entry.value = "12"
                break
        else:
            tensor.external_data.add(key="length", value="12")
    onnx.save(made, path)
    with pytest.raises(BadInput, match=r"wanted \d+ bytes of external data, got 12"):
        read_weights(path)
