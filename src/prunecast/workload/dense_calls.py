"""`DenseCall`: a dense product that an inference engine does not run as one launch of cuBLAS.

There are two cases: the experts of a layer share a grouped launch, and fp8 products quantise x first.
"""

from typing import NamedTuple

from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.scaled.call import scaled_product
from prunecast.workload.graph.experts import ExpertPart, are_fused, fused_call


class DenseCall(NamedTuple):
    """Seconds of a dense product, and the lower and upper end of their interval."""

    seconds: float
    low_s: float
    high_s: float
    bound: str
    evidence: str
    """Basis of the prediction, see `LibraryCall.evidence`."""
    note: str
    """Description of the library call that is timed."""


def dense_call(
    m: int,
    k: int,
    n: int,
    dtype: str,
    gpu: GpuSpec,
    *,
    state: str,
    fused: ExpertPart | None = None,
    scales: str | None = None,
) -> DenseCall | None:
    """Return the time of a dense product that engines do not run as one launch of cuBLAS, else None.

    Parameters
    ----------
    m, k, n : sizes of C (M, N) = A (M, K) @ B (K, N)
    state : `burst` or `sustained`
    fused : part of a fused MoE layer that the product belongs to; None outside of such layers
    scales : one of `scaled.SCALES` for fp8; None for cuBLASLt without quantising
    """
    if fused is not None and are_fused(gpu, dtype):
        call = fused_call(fused.sizes, gpu, dtype, state)
        routing = fused.sizes.routing
        grouped = f"grouped launch of all ({call.kernel}, {routing} routing)"
        note = f"share of one expert in the {grouped}, the plan is of one"
        return _with_seconds(call, fused.seconds(gpu, dtype, state), note)
    if dtype == "fp8" and scales is not None:
        call = scaled_product(m, k, n, gpu, scales=scales, state=state)
        quantise = f"{1e6 * call.parts['quantise']:.3g} us of quantising x included"
        note = f"fp8 with {scales} scales ({call.kernel}): {quantise}, the plan is of cuBLASLt's product"
        return _with_seconds(call, call.seconds, note)
    return None


def _with_seconds(call: LibraryCall, seconds: float, note: str) -> DenseCall:
    share = seconds / call.seconds
    low_s, high_s = share * call.seconds_low, share * call.seconds_high
    return DenseCall(seconds, low_s, high_s, call.bound, call.evidence, note)
