"""`DenseCall`: a dense product as an inference engine calls it, where that is not one launch of cuBLAS.

Experts of a layer share a grouped launch, and in fp8 x is quantised before it is multiplied.
"""

from typing import NamedTuple

from prunecast.hardware import GpuSpec
from prunecast.kernels.libraries.call import LibraryCall
from prunecast.kernels.libraries.scaled.call import quantise_passes, scaled_costs, scaled_product
from prunecast.workload.graph.experts import ExpertPart, are_fused, fused_call


class DenseCall(NamedTuple):
    """Time of a dense product and its bounds in seconds."""

    seconds: float
    low_s: float
    high_s: float
    bound: str
    evidence: str
    """As `LibraryCall.evidence`."""
    note: str
    """The call that is priced."""


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
    """Return the call of a product, or None if it is a launch of cuBLAS.

    Parameters
    ----------
    state : `burst` or `sustained`
    fused : the part of a fused layer of experts that the product is
    scales : one of `scaled.SCALES` for fp8; None for the product of cuBLASLt without quantising
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


def quantise_seconds(k: int, n: int, dtype: str, gpu: GpuSpec, scales: str | None) -> float:
    """Return the seconds of quantising x for a product that is not dense; 0 if x has the format already."""
    if dtype != "fp8" or scales is None:
        return 0.0
    numbers = scaled_costs(gpu.compute_capability)
    return sum(each.seconds(gpu) for each in quantise_passes(k, n, scales, numbers))
