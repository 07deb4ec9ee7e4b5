"""Which compiled form of the tile kernel a plan runs: the defines, checked against what the plan says.

The token form has 256 rows of weights by 128 tokens a block, tokens as the 64-row operand of wgmma
(`tile_tokens_sm90.cu`), alone or in clusters of two blocks that share their weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.kernels.device.build import CompiledKernel, compile_cubin
from prunecast.kernels.device.defines import ARCH, check_registers, plan_defines
from prunecast.kernels.tile.configs import OWN_WGMMA_SHAPES
from prunecast.plan.kernel_plan import KernelPlan

SOURCES = Path(__file__).parent
TOKEN_SOURCE = "tile_tokens_sm90.cu"
TOKEN_SHAPES = ((256, 128),)
"""Tiles of C whose first operand are the tokens. Kind: CUDA source, `tile_tokens_shape.cuh`."""
CLUSTERS = (1, 2)
"""CTAs of a cluster. Kind: choice, what the compile tests build."""


class Box(NamedTuple):
    """A part of C, in rows and tokens."""

    rows: int
    tokens: int


def _check_form(plan: KernelPlan) -> None:
    """Refuse plans that this kernel does not run, with `BadInput`."""
    shape = plan.shape
    if plan.tensor != "wgmma" or plan.inner is not None or plan.kernel == "dense":
        raise BadInput(f"{plan.kernel}: the tile kernel runs tile maps on wgmma, the plan has {plan.tensor}")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the tile kernel takes fp16 or bf16, the plan has {plan.dtype}")
    if (shape.block_m, shape.block_n) not in OWN_WGMMA_SHAPES or shape.block_k != 64:
        known = ", ".join(f"{m} x {n}" for m, n in OWN_WGMMA_SHAPES)
        raise BadInput(f"{plan.kernel}: block shapes are {known}; the plan has {tuple(shape)}")
    _check_cluster(plan)


def tile_defines(
    plan: KernelPlan,
    *,
    activation: str = "none",
    bias: bool = False,
    changes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Preprocessor names of the form; `changes` override them, for experiments and debugging."""
    _check_form(plan)
    defines = {
        "BLOCK_M": plan.shape.block_m,
        "BLOCK_N": plan.shape.block_n,
        "STAGES": plan.resources.stages,
        **plan_defines(plan, activation, bias=bias),
        **(token_defines(plan.cluster) if _is_token_form(plan) else {}),
    }
    return {**defines, **(changes or {})}


def build_tile_kernel(plan: KernelPlan, defines: Mapping[str, int]) -> CompiledKernel:
    """Compile the form.

    Raises
    ------
    KernelBuildError : as `compile_cubin`, or the registers differ from the plan's
    """
    source = TOKEN_SOURCE if _is_token_form(plan) else "tile_sm90.cu"
    kernel = compile_cubin(SOURCES / source, ARCH, defines, allow_spills=bool(defines.get("GUARD", 0)))
    check_registers(kernel, plan, fewer=False)
    return kernel


def box_of(plan: KernelPlan, *, gated: bool = False) -> Box:
    """What a warp stores of C with one instruction, where its rows follow one another.

    `gated`: C is the gated unit of gate and up, whose rows interleave in A (GLU in `activation.cuh`).
    """
    if _is_token_form(plan):
        return Box(rows=32, tokens=64)
    staging_of_warp = min(plan.shape.block_m * plan.shape.block_n, 32768) // 8
    return Box(rows=8 if gated else 16, tokens=64 if staging_of_warp >= 2048 else 32)


def token_box_of(plan: KernelPlan) -> Box:
    """The tensor-map box of C where C is (tokens, M): `rows` are tokens then, and `tokens` 64 rows of A."""
    return Box(rows=16 if _is_token_form(plan) else box_of(plan).tokens, tokens=64)


def _is_token_form(plan: KernelPlan) -> bool:
    return plan.tensor == "wgmma" and plan.shape[:2] in TOKEN_SHAPES


def _check_cluster(plan: KernelPlan) -> None:
    """Refuse clusters that no form of the kernel has, with `BadInput`."""
    if plan.cluster != 1 and plan.shape[:2] not in TOKEN_SHAPES:
        raise BadInput(
            f"{plan.kernel}: blocks of {tuple(plan.shape)} run alone, the plan has {plan.cluster} together"
        )
    if plan.cluster not in CLUSTERS:
        raise BadInput(f"{plan.kernel}: clusters have 1 or 2 blocks, the plan's have {plan.cluster}")


def token_defines(cluster: int) -> dict[str, int]:
    """Preprocessor names that this form has besides those of every form."""
    return {"CLUSTER": cluster}
