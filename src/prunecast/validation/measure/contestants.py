"""What can be timed: for each kernel of a suite a way to launch it on rotating inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.choice import PrunedMap
from prunecast.errors import BadInput
from prunecast.kernels import KernelPlan, compile
from prunecast.patterns import ElementMap, TileMap, element_map_from_mask
from prunecast.plan.kernel_plan import DTYPE_BYTES
from prunecast.plan.tile_rows import columns_of_any
from prunecast.validation.measure.inputs import Inputs, rounded
from prunecast.validation.measure.libraries import CsrProduct, DenseProduct

INDEX_BYTES = 4.0


class Runner(NamedTuple):
    """One kernel ready to run a case."""

    launch: Callable[[int], Any]
    """Enqueues the product of set i on the current stream and returns its C."""
    sets: int
    config: str


def dense_runners(inputs: Inputs, product: DenseProduct) -> list[Runner]:
    """The dense product with B feature-major (K, N) and token-major (N, K); the faster one counts."""
    runners = []
    sets = inputs.sets(DTYPE_BYTES[inputs.dtype] * inputs.m * inputs.k)
    for token_major in (False, True):

        def launch(i: int, token_major: bool = token_major) -> Any:
            b, c = inputs.b(i), inputs.c(i)
            # Any random numbers do for a time: (N, K) is the same memory in the other shape
            b = b.reshape(inputs.n, inputs.k) if token_major else b
            product(inputs.a(i), b, c, b_is_token_major=token_major)
            return c

        runners.append(Runner(launch, sets, "NK" if token_major else "KN"))
    return runners


def csr_runner(kept: PrunedMap, inputs: Inputs, stream: Any) -> Runner:
    """cuSPARSE; copies of its arrays are not rotated where they alone exceed the L2."""
    elements = kept if isinstance(kept, ElementMap) else _elements(kept)
    row = np.repeat(np.arange(elements.m), elements.kept_per_row)
    values = rounded(cp.asarray(inputs.weights[row, elements.column_index]), inputs.dtype)
    sets = inputs.sets((DTYPE_BYTES[inputs.dtype] + INDEX_BYTES) * elements.column_index.size)
    own_sets = min(sets, 24)
    products = [
        CsrProduct(stream, elements, values if i == 0 else values.copy(), inputs.n, inputs.dtype)
        for i in range(own_sets)
    ]

    def launch(i: int) -> Any:
        c = inputs.c(i)
        products[i % own_sets](inputs.b(i), c)
        return c

    return Runner(launch, sets, "default")


def _elements(kept: PrunedMap) -> ElementMap:
    if isinstance(kept, TileMap):
        return element_map_from_mask(kept.mask(), kept.pattern)
    if isinstance(kept, ElementMap):
        return kept
    return kept.inner


def own_runner(plan: KernelPlan, inputs: Inputs) -> Runner:
    """The project's kernel of a plan; a copy of all it keeps on the device for every set.

    Raises
    ------
    BadInput : no kernel of the project runs such a plan on this device
    """
    operator = compile(plan, inputs.weights)
    kept_bytes = DTYPE_BYTES[plan.dtype] * plan.density * plan.m * plan.k
    sets = inputs.sets(kept_bytes, columns_of_any(plan.tiles))
    operators = [operator, *(operator.copy() for _ in range(sets - 1))]

    def launch(i: int) -> Any:
        return operators[i](inputs.b(i), out=inputs.c(i))

    return Runner(launch, sets, plan.config)


def refuse_other_devices() -> None:
    """Raise BadInput where there is no GPU to measure on."""
    if not cp.cuda.is_available():
        raise BadInput("measuring needs an NVIDIA GPU, none is available; --replay needs none")
