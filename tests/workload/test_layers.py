import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from prunecast.codesign import predict, prune
from prunecast.errors import BadInput
from prunecast.workload.layers import Transposed, load_layers

ONE = np.ones((2, 3), np.float32)


def test_one_matrix_is_one_layer():
    (layer,) = load_layers(ONE).layers.values()
    assert (layer.name, layer.dtype, layer.weights.shape) == ("weights", "fp32", (2, 3))


def test_named_matrices_keep_their_order_and_can_be_selected():
    named = {"b": ONE, "a": ONE.astype(np.float16), "c": ONE.astype(ml_dtypes.bfloat16)}
    assert [layer.dtype for layer in load_layers(named).layers.values()] == ["fp32", "fp16", "bf16"]
    assert list(load_layers(named, target=["re:[ab]"], ignore=["a"]).layers) == ["b"]


def test_a_file_is_read_as_the_matrices_in_it(tmp_path):
    np.savez(tmp_path / "w.npz", a=ONE, cube=np.ones((2, 2, 2), np.float32))
    for path in (tmp_path / "w.npz", str(tmp_path / "w.npz")):
        loaded = load_layers(path)
        assert list(loaded.layers) == ["a"]
        assert [(skipped.layer, skipped.kernel) for skipped in loaded.skipped] == [("cube", None)]


def test_double_precision_becomes_single():
    assert load_layers(ONE.astype(np.float64)).layers["weights"].weights.dtype == np.float32


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.ones(3, np.float32), r"not 2-D \(shape 3\): 'bad'"),
        (np.ones((0, 3), np.float32), "0 elements, wanted 1 to"),
        (np.ones((2, 2), np.int32), "dtype int32, wanted fp16, bf16 or fp32: 'bad'"),
        (np.array([[1.0, np.nan]], np.float32), "'bad' holds 1 NaN or Inf"),
        (np.array([[1.0, np.inf]], np.float16), "'bad' holds 1 NaN or Inf"),
        (np.array([["a"]], dtype=object), "'bad' must be an array of numbers, got object"),
    ],
)
def test_other_arrays_are_refused_by_name(array, complaint):
    with pytest.raises(BadInput, match=complaint):
        load_layers({"bad": array})


def test_one_selector_is_not_a_list_of_letters():
    assert list(load_layers({"ab": ONE, "b": ONE}, target="ab").layers) == ["ab"]
    assert list(load_layers({"ab": ONE, "b": ONE}, ignore="re:^a").layers) == ["b"]


@pytest.mark.parametrize("tokens", [1.5, "5", [3]])
def test_tokens_are_whole_numbers(tokens):
    with pytest.raises(TypeError, match="tokens must be a whole number or None, got"):
        predict({"a": ONE}, gpu="h200-sxm", tokens=tokens)


def test_no_layer_at_all():
    with pytest.raises(BadInput, match="wanted at least one matrix of floats, ignore leaves out all"):
        load_layers({"a": ONE}, ignore=["a"])
    with pytest.raises(BadInput, match="matches no tensor"):
        load_layers({"a": ONE}, target=["b"])


def test_matrices_can_be_said_to_lie_transposed(tmp_path):
    """From an array or a file: turned where it is read, written back as it lay."""
    wide = np.arange(24, dtype=np.float32).reshape(4, 6) + 1
    save_file({"a": wide, "b": wide, "bias": wide[0]}, tmp_path / "w.safetensors")
    for source in ({"a": wide, "b": wide}, tmp_path / "w.safetensors"):
        turned = Transposed(weights=source, names=["re:^a"])
        layers = load_layers(turned).layers
        assert {name: layer.weights.shape for name, layer in layers.items()} == {"a": (6, 4), "b": (4, 6)}
        np.testing.assert_array_equal(layers["a"].weights, wide.T)
        prune(turned, pattern="unstructured", sparsity=0.5, out=tmp_path / "out")
        written = load_file(tmp_path / "out" / "weights.safetensors")
        assert written["a"].shape == (4, 6)
        assert set(written["a"][written["a"] != 0]) <= set(wide.ravel())


def test_transposing_what_is_no_matrix_is_refused():
    with pytest.raises(BadInput, match="wanted a matrix, got 1 dimensions: 'bias'"):
        load_layers(Transposed(weights={"a": ONE, "bias": ONE[0]}, names=["bias"]))
    with pytest.raises(BadInput, match="matches no tensor"):
        load_layers(Transposed(weights={"a": ONE}, names=["b"]))


def test_kernels_of_flax_lie_transposed():
    layers = load_layers({"Dense_0.kernel": np.ones((3, 5), np.float32)}).layers
    assert layers["Dense_0.kernel"].weights.shape == (5, 3)


@pytest.mark.parametrize("key", [1, None, b"a", ("a",), 1.5])
def test_names_are_texts(key):
    """`str(1)` would make one layer of the two."""
    with pytest.raises(TypeError, match="weights must have texts as names, got"):
        predict({key: ONE, "1": ONE}, gpu="h200-sxm")


def test_half_a_character_is_no_name():
    with pytest.raises(BadInput, match=r"the name '\\ud800' of a tensor has half a character"):
        load_layers({"\ud800": ONE})


def test_a_mask_is_not_dropped():
    masked = np.ma.masked_array(ONE, ONE > 0)
    for weights in (masked, {"a": masked}, Transposed(weights=masked, names=["weights"])):
        with pytest.raises(TypeError, match=r"'(a|weights)' is a masked one: array.filled\(0\) prunes"):
            load_layers(weights)
    assert not load_layers(masked.filled(0)).layers["weights"].weights.any()


@pytest.mark.parametrize("weights", [None, 5, object(), b"a.npy", {"a": None}])
def test_what_is_no_weights_is_a_type_error(weights):
    with pytest.raises(TypeError, match=r"weights must be a path or arrays of numbers, '(a|weights)' is"):
        load_layers(weights)
