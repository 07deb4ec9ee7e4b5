"""torch's own files: what `weights_only` lets through, and one line for all else."""

import pickle
import sys

import numpy as np
import pytest

from prunecast.errors import BadInput
from prunecast.patterns.sources import masked_checkpoint, read_weights

torch = pytest.importorskip("torch")


def state():
    return {
        "a.weight": torch.randn(8, 4),
        "a.bias": torch.zeros(8),
        "b.weight": torch.randn(4, 8).to(torch.bfloat16),
        "c.weight": torch.randn(4, 8).to(torch.float8_e4m3fn),
    }


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "pytorch_model.bin", "m.ckpt"])
@pytest.mark.parametrize("inside", [None, "state_dict", "model"])
@pytest.mark.parametrize("archive", [True, False])
def test_state_dictionaries(tmp_path, name, inside, archive):
    tensors = state()
    if not archive:
        del tensors["c.weight"]  # torch's old format holds no fp8
    whole = {"epoch": 3, inside: tensors} if inside else tensors
    torch.save(whole, tmp_path / name, _use_new_zipfile_serialization=archive)
    layers = read_weights(tmp_path / name).layers
    dtypes = {"a.weight": "fp32", "b.weight": "bf16", "c.weight": "fp16"}
    assert {n: layer.dtype for n, layer in layers.items()} == {n: dtypes[n] for n in tensors if n in dtypes}
    for n, layer in layers.items():
        np.testing.assert_array_equal(layer.weights.astype(np.float32), tensors[n].float().numpy())


def test_one_tensor_alone_has_the_name_of_its_file(tmp_path):
    torch.save(torch.randn(4, 6), tmp_path / "fc.pt")
    assert read_weights(tmp_path / "fc.pt").layers["fc"].weights.shape == (4, 6)


def test_a_folder_of_pytorch_s_shards(tmp_path):
    torch.save({"a": torch.randn(4, 4)}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"b": torch.randn(4, 4)}, tmp_path / "pytorch_model-00002-of-00002.bin")
    assert list(read_weights(tmp_path).layers) == ["a", "b"]


def test_pruned_weights_go_through(tmp_path):
    tensors = state()
    torch.save(tensors, tmp_path / "m.pt")
    mask = np.eye(8, 4, dtype=bool)
    arrays = masked_checkpoint(tmp_path / "m.pt", {"a.weight": mask}).arrays
    np.testing.assert_array_equal(arrays["a.weight"], np.where(mask, tensors["a.weight"].numpy(), 0))
    assert set(arrays) == set(tensors)


class Runs:
    def __reduce__(self):
        return (print, ("code ran",))


@pytest.mark.parametrize("archive", [True, False])
def test_code_is_refused_and_not_run(tmp_path, capsys, archive):
    torch.save({"a": Runs()}, tmp_path / "m.pt", _use_new_zipfile_serialization=archive)
    with pytest.raises(BadInput, match="more than tensors can run code and is refused; save the model's"):
        read_weights(tmp_path / "m.pt")
    (tmp_path / "p.bin").write_bytes(pickle.dumps(Runs()))
    with pytest.raises(BadInput, match=r"p\.bin: "):
        read_weights(tmp_path / "p.bin")
    assert "code ran" not in capsys.readouterr().out


def test_a_module_is_refused(tmp_path):
    torch.save(torch.nn.Linear(4, 4), tmp_path / "m.pt")
    with pytest.raises(BadInput, match="save the model's state_dict"):
        read_weights(tmp_path / "m.pt")


@pytest.mark.parametrize("found", [[1, 2], {"a": 3}, {}, 5, "text"])
def test_files_without_tensors(tmp_path, found):
    torch.save(found, tmp_path / "m.pt")
    with pytest.raises(BadInput, match="wanted a state dictionary of tensors"):
        read_weights(tmp_path / "m.pt")


@pytest.mark.parametrize("kept", [0, 1, 100, 900])
def test_what_is_cut_off(tmp_path, kept):
    torch.save(state(), tmp_path / "m.pt")
    whole = (tmp_path / "m.pt").read_bytes()
    (tmp_path / "m.pt").write_bytes(whole[:kept])
    with pytest.raises(BadInput, match=r"m\.pt: "):
        read_weights(tmp_path / "m.pt")


def test_sparse_tensors_are_left_out(tmp_path):
    torch.save({"s": torch.eye(4).to_sparse(), "w": torch.randn(4, 4)}, tmp_path / "m.pt")
    found = read_weights(tmp_path / "m.pt")
    assert list(found.layers) == ["w"]
    assert "sparse_coo float32" in found.skipped["s"]


def test_without_torch_one_line_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "m.pt").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        BadInput, match=r"needs torch to be read: pip install torch, or convert it to \.safetensors"
    ):
        read_weights(tmp_path / "m.pt")


def test_an_old_torch_is_refused(tmp_path, monkeypatch):
    (tmp_path / "m.pt").write_bytes(b"")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu121")
    with pytest.raises(BadInput, match=r"needs torch 2\.6 or newer, got 2\.5\.1"):
        read_weights(tmp_path / "m.pt")
