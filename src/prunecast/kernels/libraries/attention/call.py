"""`attention_call`: predict the kernel and the time of an attention call of a runtime on a GPU."""

from functools import lru_cache

from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.libraries.attention.choose import MATH, kernel_for
from prunecast.kernels.libraries.attention.math_path import math_parts
from prunecast.kernels.libraries.attention.seconds import (
    Costs,
    attention_clock_hz,
    costs_of,
    dram_bytes,
    exponential_rate,
    parts_of,
    product_rate,
    step_cycles,
)
from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.attention.work import CallWork, work_of
from prunecast.kernels.libraries.call import LibraryCall


@lru_cache(maxsize=4096)
def attention_call(
    shape: Attention,
    gpu: GpuSpec,
    *,
    runtime: str = "engine",
    state: str = "burst",
    launch: str = "graph",
    cold: bool = True,
) -> LibraryCall:
    """Return the kernel and the predicted time of one attention call.

    Parameters
    ----------
    shape : sizes of the call
    runtime : `engine` or `torch`, which selects the kernel. An engine also writes new keys and values into
        the cache in this call
    state : `burst` or `sustained`, which selects the clock
    launch : `graph` or `stream`, which selects the launch overhead
    cold : True if keys and values of earlier tokens are in DRAM; else they are in L2 if they fit

    Raises
    ------
    BadInput : invalid sizes (see `Attention.checked`), or a head width that no kernel supports
    """
    kernel = kernel_for(shape.checked(), gpu, runtime)
    if kernel == MATH:
        parts = math_parts(shape, gpu)
        bound = {"launch": "latency", "products": "fp32"}.get(max(parts, key=parts.__getitem__), "dram")
    else:
        costs, work = costs_of(kernel, shape.phase, gpu.compute_capability), work_of(kernel, shape, gpu)
        clock_hz = attention_clock_hz(int(work.width), gpu, state)
        found = parts_of(
            work, costs, gpu, clock_hz, cold=cold, writes_cache=runtime == "engine" and shape.is_causal
        )
        names = {name: float(seconds) for name, seconds in found._asdict().items()}
        parts = {name.replace("_", " "): seconds for name, seconds in names.items() if seconds}
        bound = _bound(parts, work, costs, gpu, cold)
    if launch == "stream":
        launches = costs["launches"] if kernel != MATH else 1.0
        parts["launch"] += launches * (gpu.stream_launch_s - gpu.graph_launch_s)
    case = f"{runtime} {shape.phase}"
    return LibraryCall.of_parts("attention", case, gpu, kernel=kernel, parts=parts, bound=bound)


def _bound(parts: dict[str, float], work: CallWork, costs: Costs, gpu: GpuSpec, cold: bool) -> str:
    """Return the resource that limits the largest part of the time.

    If the largest part is the work of the SMs, this is the resource of the largest term of a pipeline step.
    """
    largest = max(parts, key=parts.__getitem__)
    if largest == "memory":
        return "dram" if dram_bytes(work, gpu, cold) > 0.0 else "l2"
    if largest != "sms":
        return "l2" if largest == "cache write" else "latency"
    area = work.tile_rows * work.tile_keys
    products = area * costs["product_ratio"] * 2.0 * work.width / product_rate(gpu, costs)
    exponentials = area * costs["exponential_ratio"] / exponential_rate(gpu)
    rest = float(step_cycles(work, costs, gpu)) - products - exponentials
    terms = {"tensor": products, "exponentials": exponentials, "latency": rest}
    return max(terms, key=terms.__getitem__)
