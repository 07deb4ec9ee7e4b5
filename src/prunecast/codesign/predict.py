"""`predict`: how long each layer takes with each kernel that can run it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from prunecast.codesign.candidates import Candidate, candidates
from prunecast.codesign.choice import check_choice
from prunecast.codesign.crossover import Crossover, crossing
from prunecast.codesign.engines import Engine, Outcome, Progress, silent
from prunecast.codesign.interval import interval_s
from prunecast.codesign.layers import Source, load_layers
from prunecast.codesign.plans import plan_for
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.provenance import Provenance, WeightsDigest
from prunecast.codesign.pruned_maps import FittedMap, MapMaker, sparsity_for
from prunecast.codesign.table import PredictionTable, Skipped
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels.plan import DTYPE_BYTES, KernelPlan
from prunecast.patterns import SCOPES, parse_pattern
from prunecast.patterns.pattern import check_sparsity
from prunecast.patterns.sources import Layer

__all__ = ["Source", "predict"]


def predict(
    weights: Source,
    *,
    gpu: str | GpuSpec,
    tokens: int,
    sparsity: float | None = None,
    pattern: str | None = None,
    kernels: str | Sequence[str] = "all",
    engine: str = "simulator",
    state: str = "burst",
    launch: str = "graph",
    dtype: str | None = None,
    scope: str = "layer",
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    crossovers: bool = True,
    progress: Progress = silent,
) -> PredictionTable:
    """Predict every layer of a model, dense and pruned.

    Parameters
    ----------
    weights : a file, one matrix (M, K), or a mapping of names to such matrices
    gpu : a name of `gpu_names()`, the path of a spec file, or a spec
    tokens : N, columns of B and C
    sparsity : share of weights to remove, 0 <= sparsity < 1; None for 0.75. Patterns with a sparsity of
        their own, as 2:4, keep it
    pattern : pattern for all kernels that can run it; None for each kernel's own
    kernels : names, or `all`; dense is always there
    engine : `simulator` or `model`
    state : `burst` or `sustained`
    launch : `graph` or `stream`
    dtype : `fp16`, `bf16` or `fp32`; None for bf16 where the weights are bf16, else fp16
    scope : `layer`, the same sparsity in each, or `global`, the least important weights of all
    target, ignore : layers to take and to leave out, by name or `re:` and a regular expression
    crossovers : also find the sparsity from which each kernel beats dense; costs more than the prediction
    progress : told how far it is

    Raises
    ------
    BadInput : any of these cannot be used. With `all`, a kernel that cannot run a layer is skipped instead
    """
    _check(tokens, sparsity, scope, dtype)
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    wanted = None if pattern is None else parse_pattern(pattern).canonical
    chosen = candidates(kernels, wanted)
    runner = Engine(name=engine, gpu=spec, state=state, launch=launch, progress=progress)
    loaded = load_layers(weights, target=target, ignore=ignore)
    job = _Job(
        engine=runner,
        n=tokens,
        dtype=dtype,
        candidates=chosen,
        natural=pattern is None,
        strict=kernels != "all",
        maker=MapMaker(layers=loaded.layers, sparsity=sparsity, scope=scope),
    )
    found = list(_each_layer(job, loaded.layers.values(), crossovers, progress))
    return PredictionTable(
        predictions=tuple(row for part in found for row in part.predictions),
        crossovers=tuple(row for part in found for row in part.crossovers),
        skipped=(*loaded.skipped, *(row for part in found for row in part.skipped)),
        provenance=_provenance(job, loaded.layers.values()),
    )
