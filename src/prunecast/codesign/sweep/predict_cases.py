"""Predicting the cases that share one matrix; runs in a worker, so it takes and gives plain records."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from prunecast.codesign.engines import Outcome
from prunecast.codesign.plans import PrunedMap, plan_pruned
from prunecast.codesign.sweep.cases import SweepCase
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import PLANNERS, KernelPlan
from prunecast.models import estimate
from prunecast.patterns import TileMap, element_map_from_mask, parse_pattern, weigh
from prunecast.simulator import simulate

__all__ = ["predict_group"]

_ENGINES: dict[str, Callable[..., Outcome]] = {"simulator": simulate, "model": estimate}


def predict_group(cases: Sequence[SweepCase]) -> list[dict[str, Any]]:
    """One row per case: `key`, `seconds`, `sparsity_reached`, `bound`, and `error` where it cannot be run."""
    first = cases[0]
    kept: PrunedMap | BadInput | None = None
    if first.pattern != "dense":
        try:
            kept = _pruned(first)
        except BadInput as error:
            kept = error
    gpus = {name: load_gpu(name) for name in {case.gpu for case in cases}}
    maps = {"csr": _by_elements(kept) if any(case.kernel == "csr" for case in cases) else kept}
    return [_row(case, maps.get(case.kernel, kept), gpus[case.gpu]) for case in cases]


def _by_elements(kept: PrunedMap | BadInput | None) -> PrunedMap | BadInput | None:
    """What CSR runs, made once for all cases: from a map of tiles it takes longer than a prediction."""
    return element_map_from_mask(kept.mask(), kept.pattern) if isinstance(kept, TileMap) else kept


def _pruned(case: SweepCase) -> PrunedMap:
    pattern = parse_pattern(case.pattern)
    weights = np.random.default_rng(case.seed).standard_normal((case.m, case.k), np.float32)
    mask = pattern.prune({"weights": weigh("weights", weights)}, case.sparsity)["weights"]
    return pattern.map(mask)


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
        return PLANNERS["dense"](case.m, case.k, case.n, case.dtype, gpu)
    return plan_pruned(case.kernel, kept, n=case.n, dtype=case.dtype, gpu=gpu)
