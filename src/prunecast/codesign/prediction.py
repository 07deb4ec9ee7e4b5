"""`Prediction`: one layer run by one kernel."""

from dataclasses import dataclass, field
from typing import Any

from prunecast.codesign.engines import Outcome
from prunecast.kernels import KernelPlan

__all__ = ["Prediction"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """The predicted time of C (M, N) = A (M, K) @ B (K, N) for one layer and kernel.

    Parameters
    ----------
    layer : name of the weight tensor
    m, k, n : rows and columns of A, tokens
    dtype : `fp16`, `bf16` or `fp32`, of A, B and C
    pattern : canonical pattern string of what is kept
    sparsity : share of A removed, as achieved
    kernel : name of the kernel
    engine : `simulator` or `model`
    state : `burst` or `sustained`
    seconds : predicted time, launch floor included
    seconds_low, seconds_high : interval, see `codesign/interval.py`
    speedup_over_dense : time of the dense kernel on the same layer over this time
    bound : the busiest unit, or `latency`
    note : what a reader should know about this row, or empty
    plan : what was predicted
    result : what the engine found; neither is part of files
    """

    layer: str
    m: int
    k: int
    n: int
    dtype: str
    pattern: str
    sparsity: float
    kernel: str
    engine: str
    state: str
    seconds: float
    seconds_low: float
    seconds_high: float
    speedup_over_dense: float
    bound: str
    note: str = ""
    plan: KernelPlan = field(repr=False)
    result: Outcome = field(repr=False)

    @property
    def latency_us(self) -> float:
        """Predicted time in microseconds."""
        return self.seconds * 1e6

    def row(self) -> dict[str, Any]:
        """The fields that files hold, in order."""
        return {name: getattr(self, name) for name in _ROW_FIELDS}


_ROW_FIELDS = tuple(name for name in Prediction.__slots__ if name not in ("plan", "result"))
