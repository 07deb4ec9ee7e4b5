"""A file of thousands of tensors: its header is read once, not once for each."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.errors import BadInput
from prunecast.patterns.sources import read_weights, safetensors


def test_ten_thousand_tensors_take_one_look_at_the_header(tmp_path, monkeypatch):
    weights = np.arange(64, dtype=np.float16).reshape(8, 8)
    save_file({f"layers.{i}.weight": weights + i % 7 for i in range(10_000)}, tmp_path / "w.safetensors")
    looks: list[Path] = []
    header = safetensors._header
    monkeypatch.setattr(safetensors, "_header", lambda path: looks.append(path) or header(path))
    found = read_weights(tmp_path / "w.safetensors").layers
    assert len(found) == 10_000
    assert len(looks) == 1
    np.testing.assert_array_equal(found["layers.5.weight"].weights, weights + 5)


def test_tensors_that_share_their_bytes_are_refused(tmp_path):
    save_file(
        {"a": np.ones((2, 2), np.float32), "b": np.ones((2, 2), np.float32)}, tmp_path / "w.safetensors"
    )
    content = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "w.safetensors").write_bytes(content.replace(b"[16,32]", b"[ 0,16]"))
    with pytest.raises(BadInput, match="it shares its bytes with"):
        read_weights(tmp_path / "w.safetensors")
