"""`TileOperator.compile(plan, weights)`: a plan of tiles as a callable on the GPU, and the form that it runs.

The token form has 256 rows of weights by 128 tokens a block, tokens as the 64-row operand of wgmma
(`tile_tokens_sm90.cu`), alone or in clusters of two blocks that share their weights.
"""

from pathlib import Path
from typing import Any, Unpack

from prunecast.errors import BadInput
from prunecast.kernels.device.form import Form, FormOptions, plan_defines
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.tile.configs import OWN_WGMMA_SHAPES
from prunecast.kernels.tile.cuda.tensor_maps import Box, BoxMaps
from prunecast.kernels.tile.cuda.work_image import pack_plan
from prunecast.plan.kernel_plan import KernelPlan

SOURCES = Path(__file__).parent
TOKEN_SOURCE = "tile_tokens_sm90.cu"
TOKEN_SHAPES = ((256, 128),)
"""Tiles of C whose first operand are the tokens. Kind: CUDA source, `tile_tokens_shape.cuh`."""
CLUSTERS = (1, 2)
"""CTAs of a cluster. Kind: choice, what the compile tests build."""


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


def tile_form(plan: KernelPlan, **options: Unpack[FormOptions]) -> Form:
    """The form of a plan. Raises BadInput where no form of this kernel runs it."""
    _check_form(plan)
    is_token_form = _is_token_form(plan)
    own = {
        "BLOCK_M": plan.shape.block_m,
        "BLOCK_N": plan.shape.block_n,
        "STAGES": plan.resources.stages,
        **({"CLUSTER": plan.cluster} if is_token_form else {}),
    }
    source = SOURCES / (TOKEN_SOURCE if is_token_form else "tile_sm90.cu")
    registers = plan.resources.registers_per_thread
    return Form(source, "tile_sm90", {**own, **plan_defines(plan, **options)}, registers)


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


class TileOperator(Operator):
    """A plan of the wgmma tile kernel on one device."""

    name, form, pack = "the wgmma tile kernel", staticmethod(tile_form), staticmethod(pack_plan)

    def __init__(self, plan: KernelPlan, *rest: Any, **options: Any) -> None:
        super().__init__(plan, *rest, **options)
        self._maps = BoxMaps(rows=plan.m, tokens=self._wanted.padded_n, box=box_of(plan))

    def arguments(self) -> list[int]:
        """The record, and C as the copy engine sees it."""
        return [*super().arguments(), 0]

    def place(self, b: Place, c: Place) -> None:
        """B, C and the map of C."""
        super().place(b, c)
        self._launch.point(1, self._maps.address(c))
