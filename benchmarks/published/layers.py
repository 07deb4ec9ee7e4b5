"""Reader of layers inside vLLM: the rows of `layers_GPU_ORGANISATION_MODEL_DTYPE.csv`.

A row is the time of one kind of layer of a model for a number of tokens: products of cuBLAS, and passes that
move memory. Weights of a model do not stay in L2; what the layer reads is warm. Nothing was fitted to them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.published.priced import Priced
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, gpu_names
from prunecast.kernels import plan_dense
from prunecast.launch import CacheState
from prunecast.models import estimate
from prunecast.workload.graph.model_graph import Operation
from prunecast.workload.graph.runtimes import engine_seconds
from prunecast.workload.graph.shapes import Transformer, transformers

Row = Mapping[str, str]
SAME_SHAPE = {"llama-3.1-8b": "llama-3-8b", "llama-3.1-70b": "llama-3-70b"}
"""Models -> standard models of equal sizes."""
BOUNDS = (0.7, 1.4)
"""Measured over predicted time. Kind: guess."""


class File(NamedTuple):
    """Contents of a file by its name."""

    gpu: str
    model: str


def file_of(name: str) -> File:
    """Return the GPU and the model of a file.

    Raises
    ------
    BadInput : the name has no known GPU or model
    """
    words = name.removesuffix(".csv").lower().split("_")
    gpus = {gpu.replace("-", ""): gpu for gpu in gpu_names()}
    models = [SAME_SHAPE.get(word, word) for word in words[2:]]
    model = next((word for word in models if word in transformers()), None)
    if len(words) < 3 or words[1] not in gpus or model is None:
        raise BadInput(f"{name}: wanted layers_GPU_ORGANISATION_MODEL_DTYPE.csv with a known GPU and model")
    return File(gpus[words[1]], model)


def priced(rows: list[Row], gpu: GpuSpec) -> Priced:
    """Return the rows with their predictions; each has its `file`."""
    shape = transformers()[file_of(rows[0]["file"]).model]
    seconds = np.array([_seconds(row["layer"], int(row["tokens"]), shape, gpu) for row in rows])
    return Priced(
        kind=np.array([row["layer"] for row in rows]),
        measured=np.array([1e-6 * float(row["time_us"]) for row in rows]),
        seconds=seconds,
        low=BOUNDS[0] * seconds,
        high=BOUNDS[1] * seconds,
        fit=np.zeros(len(rows), np.bool_),
    )


def _seconds(layer: str, tokens: int, shape: Transformer, gpu: GpuSpec) -> float:
    """Return the prediction of a kind of layer.

    Raises
    ------
    BadInput : an unknown kind
    """
    products = {
        "qkv_proj": (shape.width + 2 * shape.key_width, shape.hidden),
        "o_proj": (shape.hidden, shape.width),
        "gate_up_proj": (2 * shape.feed_forward, shape.hidden),
        "down_proj": (shape.hidden, shape.feed_forward),
    }
    if layer in products:
        m, k = products[layer]
        l2 = CacheState(
            "model", 2.0 * shape.layers * sum(rows * columns for rows, columns in products.values())
        )
        plan = plan_dense(m, k, tokens, "bf16", gpu)
        return estimate(plan, gpu, state="sustained", launch="graph", l2=l2).seconds
    rotated = shape.width + shape.key_width
    # Elements that a kernel reads and writes for each token
    moved = {
        "act_fn": (2 * shape.feed_forward, shape.feed_forward),
        "layernorm": (2 * shape.hidden, 2 * shape.hidden),
        "final_layernorm": (2 * shape.hidden, 2 * shape.hidden),
        "rotary_emb": (rotated, rotated),
        "embedding": (shape.hidden, shape.hidden),
    }
    if layer not in moved:
        raise BadInput(f"unknown layer {layer!r}, wanted one of {', '.join((*products, *moved))}")
    read, written = (tokens * each for each in moved[layer])
    operation = Operation(name=layer, kind="elementwise", elements_in=read, elements_out=written)
    return engine_seconds(operation, gpu)
