"""Seconds for search loops: no report, no table, one number per plan or map."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from prunecast.choice import PrunedMap, fastest_plan
from prunecast.codesign.engines import ENGINES, Outcome
from prunecast.errors import BadInput, check_choice
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan
from prunecast.models import estimate
from prunecast.simulator import simulate

_RUN: dict[str, Callable[..., Outcome]] = {"simulator": simulate, "model": estimate}


def predict_seconds(
    plan: KernelPlan,
    gpu: GpuSpec | str,
    *,
    engine: str = "model",
    state: str = "burst",
    launch: str = "graph",
) -> float:
    """Seconds of one launch.

    Parameters
    ----------
    plan : made for `gpu`
    gpu : a spec, or the name or path of one
    engine, state, launch : as in `predict`

    Raises
    ------
    BadInput : an unknown name
    """
    check_choice("engine", engine, ENGINES)
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    return _RUN[engine](plan, spec, state=state, launch=launch).seconds


def estimate_many(
    maps: Iterable[PrunedMap],
    gpu: GpuSpec | str,
    *,
    kernel: str,
    n: int,
    dtype: str = "fp16",
    engine: str = "model",
    state: str = "burst",
    launch: str = "graph",
) -> NDArray[np.float64]:
    """Seconds of `kernel` on every map, (maps,) float64; maps are taken one at a time.

    Parameters
    ----------
    maps : what is kept of each A (M, K)
    n : columns of B

    Raises
    ------
    BadInput : an unknown name, or a map that the kernel cannot run, told with its place
    """
    check_choice("engine", engine, ENGINES)
    spec = load_gpu(gpu) if isinstance(gpu, str) else gpu
    seconds = []
    for place, kept in enumerate(maps):
        try:
            plan = fastest_plan(kernel, kept, n=n, dtype=dtype, gpu=spec)
            seconds.append(predict_seconds(plan, spec, engine=engine, state=state, launch=launch))
        except BadInput as error:
            raise BadInput(f"map {place}: {error}") from None
    return np.array(seconds, np.float64)
