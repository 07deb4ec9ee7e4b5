"""The bundled weights of examples/stdlib_lm are complete, small, finite and really trained."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

FOLDER = Path(__file__).parents[2] / "examples" / "stdlib_lm"
WEIGHTS = FOLDER / "weights.safetensors"
SHAPES_IN_BLOCK = {
    "attention.q": (256, 256),
    "attention.k": (256, 256),
    "attention.v": (256, 256),
    "attention.o": (256, 256),
    "ffn.up": (1024, 256),
    "ffn.down": (256, 1024),
}
LINEAR_SHAPES = {
    f"blocks.{block}.{name}.weight": shape for block in range(4) for name, shape in SHAPES_IN_BLOCK.items()
}
TRAINED_RATIO = 1.1
"""Independent random entries reach 1.0 on both measures below at these sizes."""


@pytest.fixture(scope="module")
def arrays() -> dict[str, NDArray[np.float16]]:
    """All stored arrays by name."""
    return load_file(WEIGHTS)


def noise_edge_ratio(matrix: NDArray[np.float16]) -> float:
    """The largest singular value over its limit for independent entries of the same deviation.

    Independent entries of any distribution with this deviation and finite fourth moment stay near 1, so the
    ratio tells learnt directions from an initial state, whatever that state's scale.
    """
    values = matrix.astype(np.float64)
    limit = values.std() * (np.sqrt(values.shape[0]) + np.sqrt(values.shape[1]))
    return float(np.linalg.norm(values, ord=2) / limit)


def norm_spread_ratio(matrix: NDArray[np.float16]) -> float:
    """Spread of the column norms over that of independent normal entries, 1 / sqrt(2 * rows)."""
    norms = np.linalg.norm(matrix.astype(np.float64), axis=0)
    return float(norms.std() / norms.mean() * np.sqrt(2 * matrix.shape[0]))


def trained_ratio(matrix: NDArray[np.float16]) -> float:
    """The greater of both measures: training shows in directions, in unequal inputs, or in both."""
    return max(noise_edge_ratio(matrix), norm_spread_ratio(matrix) / 2)


def test_linear_matrices_have_their_names_and_shapes(arrays: dict[str, NDArray[np.float16]]) -> None:
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
    found = {name: array.shape for name, array in matrices.items() if name.startswith("blocks.")}
    assert found == LINEAR_SHAPES


def test_all_arrays_are_finite_float16(arrays: dict[str, NDArray[np.float16]]) -> None:
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float16)}
    assert [name for name, array in arrays.items() if not np.isfinite(array).all()] == []


def test_file_is_small() -> None:
    assert WEIGHTS.stat().st_size < 8_000_000


@pytest.mark.parametrize("name", LINEAR_SHAPES)
def test_matrix_is_not_random(arrays: dict[str, NDArray[np.float16]], name: str) -> None:
    assert trained_ratio(arrays[name]) > TRAINED_RATIO


@pytest.mark.parametrize("shape", sorted(set(LINEAR_SHAPES.values())))
def test_random_matrix_would_be_recognised(shape: tuple[int, int]) -> None:
    initial = np.random.default_rng(0).normal(0, 0.02, shape).astype(np.float16)
    assert trained_ratio(initial) < TRAINED_RATIO


def test_training_halved_the_validation_loss() -> None:
    with (FOLDER / "loss.csv").open(newline="", encoding="utf-8") as file:
        losses = [float(row["validation_loss"]) for row in csv.DictReader(file)]
    assert losses[-1] < losses[0] / 2


def test_training_record_agrees_with_the_weights_metadata() -> None:
    training = json.loads((FOLDER / "training.json").read_text(encoding="utf-8"))
    with safe_open(WEIGHTS, framework="numpy") as file:
        metadata = file.metadata()
    recorded = training["validation_loss_nats_per_byte"]
    assert float(metadata["validation_loss_nats_per_byte"]) == recorded
    assert metadata["corpus_sha256"] == training["corpus_sha256"]
