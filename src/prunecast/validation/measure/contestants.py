"""Prepare the kernels of a suite for timing on rotating inputs, and check their results.

Inputs are slices of large buffers of random numbers, so that many sets of operands need no more memory than
one set. A result is checked for all tokens or for a sample of them: every element of C must agree with a
float64 result within its rounding bound.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import numpy.typing as npt

from prunecast.choice import PrunedMap
from prunecast.errors import BadInput
from prunecast.kernels import KERNELS, KernelPlan, compile
from prunecast.patterns import ElementMap, element_map_from_mask
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.tile_rows import columns_of_any
from prunecast.validation.measure.libraries import CsrProduct, CublasProduct
from prunecast.validation.measure.rotation import rotating_sets
from prunecast.validation.tolerance import OUTPUT_ROUNDOFF, error_bound

FLOATS = {"fp16": cp.float16, "fp32": cp.float32}
"""Number formats of CuPy; bf16 values are stored as their bits in uint16."""

ALIGN = 128
"""Alignment of a slice of a pool, in elements."""


class Inputs(NamedTuple):
    """Operands of one layer: weights on the host, and device buffers for several sets of A, B and C.

    Consecutive launches use different sets, so that no operand is still in L2 from its last use.
    """

    weights: npt.NDArray[np.float32]
    """(M, K) normally distributed values."""
    m: int
    k: int
    n: int
    dtype: str
    pool: Any
    """Random elements: fp16, fp32, or the bits of bf16."""
    outputs: Any

    def sets(self, kept_bytes: float, rows_read: int | None = None) -> int:
        """Return the number of sets of operands to rotate over (`rotating_sets`).

        Parameters
        ----------
        kept_bytes : bytes of the weights that a launch reads
        rows_read : rows of B that a launch reads; None for all K
        """
        rows = self.k if rows_read is None else rows_read
        l2_bytes = cp.cuda.Device().attributes["L2CacheSize"]
        return rotating_sets(kept_bytes + DTYPE_BYTES[self.dtype] * self.n * (rows + self.m), l2_bytes)

    def a(self, i: int) -> Any:
        """Return the dense weights (M, K) of set i, from the second half of the pool."""
        return _slice(self.pool[self.pool.size // 2 :], i, self.m, self.k)

    def b(self, i: int) -> Any:
        """Return B (K, N) of set i, from the first half of the pool."""
        return _slice(self.pool[: self.pool.size // 2], i, self.k, self.n)

    def c(self, i: int) -> Any:
        """Return the output buffer C (M, N) of set i."""
        return _slice(self.outputs, i, self.m, self.n)


def _slice(pool: Any, i: int, rows: int, columns: int) -> Any:
    """Return slice i of the pool, (rows, columns); i is taken modulo the number of slices that fit."""
    size = rows * columns
    stride = -(-size // ALIGN) * ALIGN
    first = i % max((pool.size - size) // stride + 1, 1) * stride
    return pool[first : first + size].reshape(rows, columns)


def layer_inputs(m: int, k: int, n: int, dtype: str, pool: Any, outputs: Any) -> Inputs:
    """Return the inputs of one layer in buffers that all layers share; M and K seed the random weights."""
    rng = np.random.default_rng([m, k, 77])
    weights = rng.standard_normal((m, k), dtype=np.float32)
    return Inputs(weights, m, k, n, dtype, pool, outputs)


def random_pool(elements: int, dtype: str) -> Any:
    """Return `elements` normal random values on the device, in the format of `rounded`."""
    values = cp.random.RandomState(5).standard_normal(elements, dtype=cp.float32)
    return rounded(values, dtype)


def rounded(x: Any, dtype: str) -> Any:
    """Return fp32 values rounded to nearest even as fp16, or as the bits of bf16 in uint16; fp32 stays
    fp32.
    """
    if dtype in FLOATS:
        return x.astype(FLOATS[dtype])
    bits = x.view(cp.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(cp.uint16)


def nothing(dtype: str) -> float | int:
    """Return NaN in the number format of C. A check fills C with NaN before the launch, to find elements that
    the kernel does not write.
    """
    return float("nan") if dtype in FLOATS else 0x7FC0


def exact(x: Any, dtype: str) -> Any:
    """Return the values of an array, in the format that `rounded` returns, as float64."""
    if dtype in FLOATS:
        return x.astype(cp.float64)
    return (x.astype(cp.uint32) << 16).view(cp.float32).astype(cp.float64)


INDEX_BYTES = 4.0
"""Bytes of the column index of a kept element in CSR. Kind: definition, int32."""


class Runner(NamedTuple):
    """Kernel that is ready to run a case on rotating sets of operands."""

    launch: Callable[[int], Any]
    """Enqueues the product of set i on the current stream and returns its C."""
    sets: int
    config: str
    plan: KernelPlan | None = None
    """Plan of a kernel of this project; None if `launch` calls cuBLAS or cuSPARSE."""


def dense_runners(inputs: Inputs, product: CublasProduct) -> list[Runner]:
    """Return runners of the dense product with B feature-major (K, N) and token-major (N, K)."""
    runners = []
    sets = inputs.sets(DTYPE_BYTES[inputs.dtype] * inputs.m * inputs.k)
    for token_major in (False, True):

        def launch(i: int, token_major: bool = token_major) -> Any:
            b, c = inputs.b(i), inputs.c(i)
            # Times do not depend on the random values: reshape the memory of (K, N) to (N, K)
            b = b.reshape(inputs.n, inputs.k) if token_major else b
            product(inputs.a(i), b, c, b_is_token_major=token_major)
            return c

        runners.append(Runner(launch, sets, "NK" if token_major else "KN"))
    return runners


def csr_runner(kept: PrunedMap, inputs: Inputs, stream: Any) -> Runner:
    """Return the runner of cuSPARSE. B and C rotate over all sets, the CSR values over at most 24 sets."""
    elements = kept if isinstance(kept, ElementMap) else element_map_from_mask(kept.mask(), kept.pattern)
    row = np.repeat(np.arange(elements.m), elements.kept_per_row)
    values = rounded(cp.asarray(inputs.weights[row, elements.column_index]), inputs.dtype)
    sets = inputs.sets((DTYPE_BYTES[inputs.dtype] + INDEX_BYTES) * elements.kept_count)
    own_sets = min(sets, 24)  # each set is a copy of the values, whereas B and C are slices. Kind: choice
    products = [
        CsrProduct(stream, elements, values if i == 0 else values.copy(), inputs.n, inputs.dtype)
        for i in range(own_sets)
    ]

    def launch(i: int) -> Any:
        c = inputs.c(i)
        products[i % own_sets](inputs.b(i), c)
        return c

    return Runner(launch, sets, "default")


def own_runner(plan: KernelPlan, inputs: Inputs) -> Runner:
    """Return the runner of the project's kernel for a plan, with a copy of its device arrays for every set.

    Raises
    ------
    BadInput : no kernel of the project can run the plan on this device
    """
    operator = compile(plan, inputs.weights)
    sets = inputs.sets(KERNELS[plan.kernel].read_bytes(plan), columns_of_any(plan.tiles))
    operators = [operator, *(operator.copy() for _ in range(sets - 1))]

    def launch(i: int) -> Any:
        return operators[i](inputs.b(i), out=inputs.c(i))

    return Runner(launch, sets, str(plan.config), plan)


def kernel_runners(
    kernel: str,
    plan: Callable[[], KernelPlan],
    kept: PrunedMap,
    inputs: Inputs,
    stream: Any,
    dense: CublasProduct,
) -> list[Runner]:
    """Return the runners of a kernel of `KERNELS`: two of cuBLAS, one of any other kernel.

    Parameters
    ----------
    plan : returns what a kernel of the project launches; not called for cuBLAS and cuSPARSE
    dense : the product of cuBLAS in the number format of the inputs

    Raises
    ------
    BadInput, KernelBuildError : there is no plan, or this device cannot run it
    """
    if KERNELS[kernel].is_baseline:
        return dense_runners(inputs, dense)
    if KERNELS[kernel].runs_any_mask:
        return [csr_runner(kept, inputs, stream)]
    return [own_runner(plan(), inputs)]


def refuse_other_devices() -> None:
    """Raise BadInput if there is no GPU to measure on."""
    if not cp.cuda.is_available():
        raise BadInput("measuring needs an NVIDIA GPU, none is available; --replay needs none")


MOST_MULTIPLY_ADDS = 4e10
"""Number of multiply-adds above which a check computes only a sample of tokens: the first and last tokens,
whose tiles kernels treat specially, and random ones."""
EDGE_TOKENS = 64
LIBRARY_ROUNDINGS = 2
"""Number of additional roundings to the format of C that the error bound allows for NVIDIA's libraries.
Reason: cuSPARSE adds partial sums in fp16, with errors of 1.7 to 85 times the bound of fp32 sums (measured,
H200, 2026-11-20)."""


def largest_excess(runners: list[Runner], kernel: str, kept: PrunedMap, inputs: Inputs) -> float:
    """Run each product once, and return the largest ratio of |error| to error bound over checked elements.

    The ratio is at most 1 if the results are correct, and infinite if an element is not finite.

    Parameters
    ----------
    kernel : name in `KERNELS`; the baseline multiplies the dense random weights of the pool
    kept : map of the kept weights; unused for the baseline
    """
    if KERNELS[kernel].is_baseline:
        weights, most = exact(inputs.a(0), inputs.dtype), inputs.k
    else:
        mask = kept.mask()
        weights = exact(rounded(cp.asarray(inputs.weights), inputs.dtype), inputs.dtype)
        weights *= cp.asarray(mask)
        most = int(mask.sum(axis=1).max(initial=1))
    library = KERNELS[kernel].library
    return max(_excess(runner, weights, most, inputs, library=library) for runner in runners)


def _excess(runner: Runner, a: Any, kept: int, inputs: Inputs, *, library: bool) -> float:
    """Return the largest ratio of |error| to error bound of one product.

    Parameters
    ----------
    a : (M, K) float64, the weights that the product keeps
    kept : maximum number of products in one sum
    library : True if partial sums may be rounded to the format of C, as NVIDIA's libraries do
    """
    c = inputs.c(0)
    c.fill(nothing(inputs.dtype))
    runner.launch(0)
    tokens = _tokens(inputs)
    b = inputs.b(0)
    if runner.config == "NK":
        b = b.reshape(inputs.n, inputs.k).T
    b = exact(cp.ascontiguousarray(b[:, tokens]), inputs.dtype)
    got = exact(cp.ascontiguousarray(c[:, tokens]), inputs.dtype)
    reference = a @ b
    absolute = cp.abs(a) @ cp.abs(b)
    bound = error_bound(reference, absolute, max(kept, 1), inputs.dtype)
    if library:
        bound += LIBRARY_ROUNDINGS * OUTPUT_ROUNDOFF[inputs.dtype] * absolute
    excess = cp.abs(got - reference) / bound
    excess[~cp.isfinite(got)] = cp.inf
    return float(excess.max())


def _tokens(inputs: Inputs) -> Any:
    most = int(MOST_MULTIPLY_ADDS / (inputs.m * inputs.k))
    if inputs.n <= max(most, 2 * EDGE_TOKENS):
        return cp.arange(inputs.n)
    middle = np.random.default_rng(3).choice(inputs.n, max(most - 2 * EDGE_TOKENS, 1), replace=False)
    edges = np.concatenate((np.arange(EDGE_TOKENS), np.arange(inputs.n - EDGE_TOKENS, inputs.n)))
    return cp.asarray(np.unique(np.concatenate((edges, middle))))
