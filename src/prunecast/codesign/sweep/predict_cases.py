"""Predicting the cases that share one matrix; runs in a worker, so it takes and gives plain records.

A worker keeps what the next group may share: the importance, the last maps, the specs of known GPUs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.engines import Outcome
from prunecast.codesign.sweep.cases import GroupKey, SweepCase, groups_of
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, gpu_names, load_gpu
from prunecast.kernels import KERNELS, KernelPlan, plan_dense
from prunecast.models import estimate
from prunecast.patterns import TileMap, element_map_from_mask, parse_pattern, weigh
from prunecast.patterns.importance import ImportanceArray
from prunecast.simulator import simulate

MOST_SHARED = 2**26
"""Weights of which a worker keeps the importance: 256 MiB."""

_ENGINES: dict[str, Callable[..., Outcome]] = {"simulator": simulate, "model": estimate}


def predict_group(cases: Sequence[SweepCase]) -> list[dict[str, Any]]:
    """One row per case: `key`, `seconds`, `sparsity_reached`, `bound`, and `error` where it cannot be run."""
    (key,) = groups_of(cases)
    kept: PrunedMap | BadInput | None = None
    if key.pattern != "dense":
        try:
            kept = _pruned(key)
        except BadInput as error:
            kept = error
    by_elements = isinstance(kept, TileMap) and any(KERNELS[case.kernel].runs_any_mask for case in cases)
    maps = {"csr": _by_elements(key) if by_elements else kept}
    return [_row(case, maps.get(case.kernel, kept), _gpu(case.gpu)) for case in cases]


@lru_cache(maxsize=2)
def _by_elements(key: GroupKey) -> PrunedMap:
    """What CSR runs, made once for all cases: from a map of tiles it takes longer than a prediction."""
    kept = _pruned(key)
    return element_map_from_mask(kept.mask(), kept.pattern)


@lru_cache(maxsize=2)
def _pruned(key: GroupKey) -> PrunedMap:
    pattern = parse_pattern(key.pattern)
    importance = _shared_importance if key.m * key.k <= MOST_SHARED else _importance
    mask = pattern.prune({"weights": importance(key.m, key.k, key.seed)}, key.sparsity)["weights"]
    return pattern.map(mask)


@lru_cache(maxsize=1)
def _shared_importance(m: int, k: int, seed: int) -> ImportanceArray:
    """Groups of one shape follow one another, and all start from it."""
    importance = _importance(m, k, seed)
    importance.flags.writeable = False
    return importance


def _importance(m: int, k: int, seed: int) -> ImportanceArray:
    """Importance of random weights (M, K)."""
    return weigh("weights", np.random.default_rng(seed).standard_normal((m, k), np.float32))


def _gpu(name: str) -> GpuSpec:
    """A file of the user's may change between two groups."""
    return _known_gpu(name) if name in gpu_names() else load_gpu(name)


@lru_cache(maxsize=64)
def _known_gpu(name: str) -> GpuSpec:
    return load_gpu(name)


def _row(case: SweepCase, kept: PrunedMap | BadInput | None, gpu: GpuSpec) -> dict[str, Any]:
    row: dict[str, Any] = {"key": case.key(gpu.fingerprint), "seconds": None, "bound": None, "error": None}
    row["sparsity_reached"] = None
    try:
        if isinstance(kept, BadInput):
            raise kept
        plan = _plan(case, kept, gpu)
        run = _ENGINES[case.engine]
        outcome = run(plan, gpu, state=case.state, launch=case.launch)
    except BadInput as error:
        return {**row, "error": str(error)}
    return {**row, "seconds": outcome.seconds, "bound": outcome.bound, "sparsity_reached": plan.sparsity}


def _plan(case: SweepCase, kept: PrunedMap | None, gpu: GpuSpec) -> KernelPlan:
    if kept is None:
        return plan_dense(case.m, case.k, case.n, case.dtype, gpu)
    return fastest_plan(case.kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)
