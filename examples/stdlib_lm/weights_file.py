"""Files of trained weights: float16 arrays with a few facts about their training as string metadata."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

METADATA_KEYS = (
    "python_version",
    "torch_version",
    "steps",
    "validation_loss_nats_per_byte",
    "seed",
    "corpus_bytes",
    "corpus_sha256",
)
"""Entries of training.json that weights.safetensors repeats, each as a string."""


def save_weights(arrays: dict[str, NDArray[np.float16]], training: dict[str, Any], folder: Path) -> Path:
    """Writes weights.safetensors, or weights.npz where safetensors is not installed; returns the path."""
    if importlib.util.find_spec("safetensors"):
        return save_safetensors(arrays, training, folder)
    np.savez(folder / "weights.npz", **arrays)
    return folder / "weights.npz"


def save_safetensors(arrays: dict[str, NDArray[np.float16]], training: dict[str, Any], folder: Path) -> Path:
    """Writes weights.safetensors with metadata taken from what training.json holds; returns the path."""
    from safetensors.numpy import save_file

    path = folder / "weights.safetensors"
    save_file(arrays, path, metadata={key: str(training[key]) for key in METADATA_KEYS})
    path.chmod(0o644)  # safetensors leaves it readable to its owner alone
    return path
