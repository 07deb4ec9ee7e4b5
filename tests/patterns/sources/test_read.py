import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns.sources import Layer, read_weights
from prunecast.patterns.sources.read import _unusable
from prunecast.patterns.sources.readers import READERS, files_read, reader_of
from prunecast.patterns.sources.stored_tensor import StoredTensor


@pytest.fixture
def model(tmp_path):
    names = ["embedder.weight", "layer.0.fc", "layer.1.fc", "head"]
    np.savez(tmp_path / "m.npz", bias=np.ones(2), **{name: np.ones((2, 2), np.float16) for name in names})
    return tmp_path / "m.npz"


@pytest.mark.parametrize(
    ("target", "ignore", "names"),
    [
        ((), (), ["embedder.weight", "layer.0.fc", "layer.1.fc", "head"]),
        ((), "re:embed", ["layer.0.fc", "layer.1.fc", "head"]),
        ("re:fc$", ["layer.1.fc"], ["layer.0.fc"]),
        (["head", "re:^layer"], (), ["layer.0.fc", "layer.1.fc", "head"]),
        ((), ("head", "re:missing"), ["embedder.weight", "layer.0.fc", "layer.1.fc"]),
        ("re:.", (), ["embedder.weight", "layer.0.fc", "layer.1.fc", "head"]),
    ],
)
def test_selectors(model, target, ignore, names):
    assert list(read_weights(model, target, ignore).layers) == names


@pytest.mark.parametrize(
    ("target", "ignore", "message"),
    [
        ("layer.0.fcc", (), "target 'layer.0.fcc' matches no tensor; nearest: layer.0.fc"),
        ("re:^xyz", (), "target 're:\\^xyz' matches no tensor; the file has bias, embedder.weight"),
        ("re:(", (), r"selector 're:\(': invalid regular expression"),
        ((), "re:[", r"selector 're:\[': invalid regular expression"),
        ((), ["layer"], "ignore 'layer' matches no tensor; re:layer finds 2"),
        ("bias", (), r"m.npz: tensor that is not 2-D \(shape 2\): 'bias'"),
        ((), "re:.", "m.npz: wanted at least one matrix of floats, ignore leaves out all 5 tensors"),
    ],
)
def test_selectors_that_cannot_be_used(model, target, ignore, message):
    with pytest.raises(BadInput, match=message):
        read_weights(model, target, ignore)


@pytest.mark.parametrize("name", ["m.PKL", "m.pickle", "m.joblib"])
def test_pickles_are_refused_unseen_with_advice(tmp_path, name):
    with pytest.raises(BadInput, match=f"{name}: pickles can run code .*; convert the file to .safetensors"):
        read_weights(tmp_path / name)


def test_files_that_are_not_there_or_no_files(tmp_path):
    with pytest.raises(BadInput, match=r"m.npz: no such file"):
        read_weights(tmp_path / "m.npz")
    with pytest.raises(BadInput, match=r"wanted a folder with a checkpoint in \.safetensors"):
        read_weights(tmp_path)


@pytest.mark.parametrize(("name", "got"), [("m.onnx2", "'.onnx2'"), ("model", "'no suffix'")])
def test_unknown_suffixes_list_the_known_ones(tmp_path, name, got):
    (tmp_path / name).touch()
    known = ".safetensors, .npz, .npy, .mtx, .smtx, .onnx, .pt, .pth, .bin, .ckpt, .safetensors.index.json"
    with pytest.raises(BadInput, match=f"wanted a file ending in {known}, got {got}"):
        read_weights(tmp_path / name)


def test_suffixes_may_be_in_capitals(model):
    assert len(read_weights(model.rename(model.with_suffix(".NPZ"))).layers) == 4


def test_every_ending_has_one_reader_and_unknown_files_read_nothing_else(tmp_path):
    endings = [end for reader in READERS for end in reader.endings]
    assert len(endings) == len(set(endings))
    for reader in READERS:
        assert all(reader_of(tmp_path / f"Model{end.upper()}") is reader for end in reader.endings)
    table = tmp_path / "table.json"
    table.write_text("{}")
    assert list(files_read(table)) == [table]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((2**31 - 1, 1), None),
        ((2**31, 1), f"tensor of {2**31} elements, wanted 1 to 2147483647"),
        ((2**32, 2**31), f"tensor of {2**63} elements, wanted"),
        ((2**63 + 1, 1), "tensor of far too many elements, wanted"),
        ((10**4000, 10**4000), "tensor of far too many elements, wanted"),
        ((0, 4), "tensor of 0 elements, wanted"),
        ((4,), "tensor that is not 2-D (shape 4)"),
        ((2, 2, 2), "tensor that is not 2-D (shape 2x2x2)"),
        ((2, 2, 2, 2), None),
    ],
)
def test_only_matrices_and_filters_of_up_to_two_billion_numbers_are_layers(shape, said):
    reason = _unusable(StoredTensor(shape=shape, dtype="float16", load=pytest.fail))
    assert reason is None if said is None else reason.startswith(said)


@pytest.mark.parametrize(
    ("tokens", "per_token", "experts", "share"),
    [
        (100, 2, None, 100),
        (64, 2, 8, 16),
        (65, 2, 8, 17),
        (4, 2, 8, 1),
        (3, 1, 128, 1),
        (5, 8, 8, 5),
        (5, 9, 8, 5),
    ],
)
def test_an_expert_multiplies_its_share_of_the_tokens_and_at_least_one(tokens, per_token, experts, share):
    layer = Layer(name="w", shape=(2, 2), load=pytest.fail, dtype="fp16", experts=experts)
    assert layer.share_of(tokens, per_token) == share


def test_vectors_are_counted_and_other_tensors_named(tmp_path):
    arrays = {"bias": np.ones(2), "norm": np.ones(3), "cube": np.ones((2, 2, 2)), "a": np.ones((2, 2))}
    np.savez(tmp_path / "m.npz", **arrays)
    found = read_weights(tmp_path / "m.npz")
    assert (found.vectors, list(found.skipped), found.skipped_weights) == (2, ["cube"], {"cube": 8})
    del arrays["a"]
    np.savez(tmp_path / "m.npz", **arrays)
    with pytest.raises(BadInput, match="got 2 vectors and 1 other tensors"):
        read_weights(tmp_path / "m.npz")
