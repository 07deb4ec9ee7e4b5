import numpy as np
import pytest
from safetensors.numpy import save_file


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Two layers with names that markup or a terminal could take for something else."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    tensors = {
        "[bold]a[/].weight": rng.standard_normal((256, 128)).astype(np.float16),
        "b\x1b[31m.weight": rng.standard_normal((128, 128)).astype(np.float16),
        "bias": np.zeros(8, np.float16),
    }
    save_file(tensors, "model.safetensors")
    return "model.safetensors"
