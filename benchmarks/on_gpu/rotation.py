"""Inputs and operators in rotation, so that nothing is in L2 that a user would not have; and cuBLAS."""

from collections.abc import Callable
from typing import Any, NamedTuple

import cupy as cp

from benchmarks.on_gpu.timing import Contestant, contestant, rotations
from prunecast.kernels import KernelPlan
from prunecast.validation.measure.libraries import DenseProduct

Sets = list[tuple[Any, Any, Any]]
"""A (M, K), B (K, N) and C (M, N), fp16."""


class Rotation(NamedTuple):
    """Operators of one plan with weights of their own, each with a B and a C."""

    operators: list[Any]
    bs: list[Any]
    cs: list[Any]


def input_sets(m: int, k: int, n: int) -> Sets:
    """Random A and B, and C, as many as a cold L2 wants."""
    random = cp.random.RandomState(1)
    return [
        (
            *(
                random.standard_normal(shape, dtype=cp.float32).astype(cp.float16)
                for shape in ((m, k), (k, n))
            ),
            cp.empty((m, n), cp.float16),
        )
        for _ in range(rotations(2 * (m * k + k * n + m * n)))
    ]


def moved_bytes(plan: KernelPlan, weight_bytes: float = 2.0) -> float:
    """Of weights that are kept, B and C, with so many bytes for each weight."""
    return weight_bytes * plan.m * plan.k * plan.density + 2 * (plan.k * plan.n + plan.m * plan.n)


def more_sets(sets: Sets, count: int) -> tuple[list[Any], list[Any]]:
    """B and C of `count` sets; sparse weights are smaller, so that it takes more of them to fill the L2."""
    bs, cs = [s[1] for s in sets], [s[2] for s in sets]
    while len(bs) < count:
        bs.append(bs[len(bs) - len(sets)].copy())
        cs.append(cp.empty_like(cs[0]))
    return bs, cs


def rotation_of(operator: Any, sets: Sets, count: int) -> Rotation:
    """`count` operators and as many sets."""
    return Rotation([operator, *(operator.copy() for _ in range(count - 1))], *more_sets(sets, count))


def launcher(rotation: Rotation, *, overlap: bool = True) -> Callable[[int], object]:
    """The product of a place in the rotation; `overlap` lets it begin while the launch before it ends."""

    def run(i: int) -> object:
        rotation.operators[i].overlap = overlap
        return rotation.operators[i](rotation.bs[i], out=rotation.cs[i])

    return run


_DTYPES = {"float16": "fp16", "float32": "fp32"}


def dense_contestants(stream: Any, sets: Sets) -> list[Contestant]:
    """CuBLAS with B (K, N) and with B (N, K)."""
    return [cublas_contestant(stream, sets, token_major=major) for major in (False, True)]


def cublas_contestant(stream: Any, sets: Sets, *, token_major: bool) -> Contestant:
    """The dense product; checked against CuPy's own on the first set."""
    product = DenseProduct(stream, _DTYPES[sets[0][0].dtype.name])
    bs = [cp.ascontiguousarray(b.T) if token_major else b for _, b, _ in sets]

    def launch(i: int) -> None:
        product(sets[i][0], bs[i], sets[i][2], b_is_token_major=token_major)

    launch(0)
    a, b, c = sets[0]
    wanted = a[:64].astype(cp.float32) @ b.astype(cp.float32)
    error = float(cp.abs(c[:64].astype(cp.float32) - wanted).max() / cp.abs(wanted).max())
    if not error < 2e-3:
        raise RuntimeError(f"cuBLAS baseline is wrong by {error}")
    name = f"cublas {'NK' if token_major else 'KN'}"
    return contestant(name, stream, launch, sets=len(sets))
