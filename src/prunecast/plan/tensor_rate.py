"""Throughput and latency of the tensor instructions of a plan on a GPU, and checks of formats."""

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import DTYPE_BYTES, OWN_DTYPES

TENSOR_PATHS = ("wgmma", "sparse-wgmma", "mma", "sparse-mma")
"""Values of `KernelPlan.tensor` that use tensor cores. The wgmma paths run at the GPU's native rate."""

_RATE_FIELD = {
    "fp16": "tensor_fp16_fma_per_clk_per_sm",
    "bf16": "tensor_bf16_fma_per_clk_per_sm",
    "tf32": "tensor_tf32_fma_per_clk_per_sm",
    "fp8": "tensor_fp8_fma_per_clk_per_sm",
    "int8": "tensor_int8_fma_per_clk_per_sm",
}


def check_dtype(dtype: str) -> None:
    """Raise BadInput unless `dtype` is one of `DTYPE_BYTES`."""
    if dtype not in DTYPE_BYTES:
        raise BadInput(f"dtype must be one of {', '.join(DTYPE_BYTES)}, got {dtype!r}")


def check_own_dtype(dtype: str) -> None:
    """Raise BadInput for a dtype that no kernel of the project multiplies."""
    check_dtype(dtype)
    if dtype not in OWN_DTYPES:
        others = "int8 and fp8 are for dense and cusparselt, fp8 for tiles too"
        raise BadInput(f"dtype must be one of {', '.join(OWN_DTYPES)}, got {dtype}; {others}")


def tensor_fma_per_clk(gpu: GpuSpec, dtype: str, tensor: str) -> float:
    """Return the FMA per clock and SM of tensor instructions of the path `tensor`.

    On the sparse paths only kept FMA count, so that a GPU whose 2:4 instructions double the dense rate
    executes kept FMA at the dense rate.

    Raises
    ------
    BadInput : unknown dtype or path; the GPU has no tensor cores for the dtype, or no sparse tensor cores on
        a sparse path
    """
    check_dtype(dtype)
    if tensor not in TENSOR_PATHS:
        raise BadInput(f"tensor path must be one of {', '.join(TENSOR_PATHS)}, got {tensor!r}")
    if dtype not in _RATE_FIELD:
        raise BadInput(f"tensor cores do not multiply {dtype}: tf32 rounds it to what they do")
    rate = float(getattr(gpu, _RATE_FIELD[dtype]))
    if rate <= 0.0:
        raise BadInput(f"dtype {dtype} needs {dtype} tensor cores, {gpu.name} has none")
    if tensor.endswith("mma") and not tensor.endswith("wgmma"):
        rate *= gpu.mma_sync_share
    if tensor.startswith("sparse-"):
        if gpu.sparse_tensor_factor <= 0.0:
            raise BadInput(f"2:4 needs sparse tensor cores, {gpu.name} has none")
        rate *= gpu.sparse_tensor_factor / 2.0
    return rate


def fma_per_clk(gpu: GpuSpec, dtype: str, tensor: str) -> float:
    """Return the FMA per clock and SM of tensor cores, or of CUDA cores if `tensor` is `none`.

    Raises
    ------
    BadInput : in the same cases as `tensor_fma_per_clk`
    """
    return float(gpu.fp32_fma_per_clk_per_sm) if tensor == "none" else tensor_fma_per_clk(gpu, dtype, tensor)


def tensor_latency_cycles(gpu: GpuSpec, tensor: str) -> int:
    """Return the latency of a tensor instruction in cycles; wgmma has a longer latency than mma.sync."""
    return gpu.warpgroup_latency_cycles if tensor.endswith("wgmma") else gpu.tensor_latency_cycles


def check_core_dtype(dtype: str, gpu: GpuSpec) -> None:
    """Raise BadInput for a dtype in which the GPU's CUDA cores do not compute."""
    check_own_dtype(dtype)
    if dtype == "tf32":
        raise BadInput("dtype tf32 is a format of tensor cores: on CUDA cores it is fp32")
    if dtype == "bf16" and gpu.compute_capability < 80:
        raise BadInput(
            f"dtype bf16 needs compute capability 8.0, {gpu.name} has {gpu.compute_capability / 10}"
        )
