"""`predict_model_case`: predict a forward pass of a model in torch, dense and with all layers pruned."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.patterns import TileMap, parse_pattern
from prunecast.plan.misaligned import FEW_TOKENS, planned_tokens
from prunecast.validation.torch_models.promise import Promise
from prunecast.workload.engines import Engine, Progress, silent
from prunecast.workload.graph import ModelTime, model_time
from prunecast.workload.graph.config import CONFIG, checkpoint_shape
from prunecast.workload.graph.shapes import Pass, Transformer, transformers
from prunecast.workload.graph.workloads import transformer_graph


class ModelCase(NamedTuple):
    """Model, forward pass and pruning of a measurement."""

    model: str
    """Name of a standard transformer, a key of `transformers()`; or the path of a Hugging Face folder."""
    run: Pass
    sparsity: float = 0.75
    pattern: str = "tile-wise:128"
    blocks: int | None = None
    """Number of transformer blocks of a standard model; None for all."""
    promise: Promise | None = None
    """Predicted times from the recipe of a folder that `prune` wrote. The folder is then measured with its
    recipe, and `sparsity` and `pattern` are not used.
    """

    @property
    def name(self) -> str:
        """Name of the case, such as `llama-2-7b 4 blocks decode:16@1024 75%`."""
        if self.promise is not None:
            return f"{Path(self.model).name} {self.run.label}, promised {self.promise.share:.1%} of dense"
        blocks = "" if self.blocks is None else f" {self.blocks} blocks"
        return f"{self.model}{blocks} {self.run.label} {self.sparsity:.0%}"

    @property
    def shape(self) -> Transformer:
        """Sizes of the model with the requested number of blocks and without the head.

        Raises
        ------
        BadInput : `model` is neither a standard transformer nor a Hugging Face folder of a known one
        """
        shape = transformers().get(self.model)
        if shape is None and (Path(self.model) / CONFIG).is_file():
            shape = checkpoint_shape(self.model)
        if shape is None:
            known = ", ".join(transformers())
            raise BadInput(f"model must be a Hugging Face folder or one of {known}, got {self.model!r:.80}")
        return replace(shape, head=0, layers=shape.layers if self.blocks is None else self.blocks)


SAMPLE = 256
"""Number of rows, and of columns, of the random weights with which `check_model_case` tests a pattern."""


class ModelPrediction(NamedTuple):
    """Predicted times of a forward pass of the dense and of the sparse model."""

    dense: ModelTime
    sparse: ModelTime

    @property
    def speedup(self) -> float:
        """Dense time divided by sparse time."""
        return self.dense.seconds / self.sparse.seconds


def predict_model_case(
    case: ModelCase,
    gpu: GpuSpec,
    *,
    engine: str = "simulator",
    dtype: str = "fp16",
    progress: Progress = silent,
) -> ModelPrediction:
    """Predict the time of a forward pass of the dense and of the sparse model, both without a head.

    The dense model runs with `torch.compile`, the sparse one with `prunecast.torch.sparsify`. The weights to
    be pruned are normal random numbers.

    Raises
    ------
    BadInput : the structure of the model in torch is unknown, or the pattern has neither tiles nor 2:4
    """
    graph = transformer_graph(case.model, case.shape, case.run, "torch")
    runner = Engine(name=engine, gpu=gpu, progress=progress)
    products = graph.products
    dense = {name: runner.run(plan_dense(o.m, o.k, o.n, dtype, gpu)).seconds for name, o in products.items()}
    plans: dict[tuple[int, int], KernelPlan] = {}
    for o in products.values():
        if (o.m, o.k) not in plans:
            # Plan as the runtime in torch does
            kept = _kept(case, o.m, o.k)
            kernel = "2:4" if not isinstance(kept, TileMap) else "small-n" if o.n <= FEW_TOKENS else "stspmm"
            plans[o.m, o.k] = fastest_plan(kernel, kept, planned_tokens(o.n), dtype, gpu)
    sparse = {name: runner.run(plans[o.m, o.k]).seconds for name, o in products.items()}
    runner.stop()
    all_of_them = frozenset(products)
    is_unfused = any(not KERNELS[plan.kernel].fuses_in_torch for plan in plans.values())
    unfused = all_of_them if is_unfused else frozenset()
    whole = model_time(graph, gpu, sparse, sparse=all_of_them, unfused=unfused)
    return ModelPrediction(model_time(graph, gpu, dense), whole)


def _kept(case: ModelCase, m: int, k: int) -> PrunedMap:
    """Return the pruned map of normal random weights (m, k). Raises BadInput unless it has tiles or is
    2:4.
    """
    weights = np.abs(np.random.default_rng(0).standard_normal((m, k), np.float32))
    rule = parse_pattern(case.pattern)
    kept = rule.map(rule.prune({"layer": weights}, case.sparsity)["layer"])
    if not isinstance(kept, TileMap) and not KERNELS["2:4"].runs(rule.canonical, rule.keeps):
        raise BadInput(f"prunecast.torch runs patterns of tiles and 2:4, {rule.canonical} has none")
    return kept


def check_model_case(case: ModelCase) -> None:
    """Raise BadInput, without a prediction, for a case that `predict_model_case` would refuse."""
    if case.promise is not None:
        return
    transformer_graph(case.model, case.shape, case.run, "torch")
    if case.blocks is not None and case.model not in transformers():
        raise BadInput(f"blocks are of models by name, {case.model!r:.80} has its own")
    _kept(case, SAMPLE, SAMPLE)
