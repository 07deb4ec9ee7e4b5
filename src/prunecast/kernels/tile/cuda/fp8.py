"""`Fp8TileOperator`: the variant of the tile kernel in which tokens are the first operand of wgmma, with
operands in fp8 (e4m3).

B is (tokens, K), C is (tokens, M) in fp16 or bf16. The kernel multiplies C by a scale per row of A and a
scale per token of B. Tiles keep columns in runs of `RUN`; each run of B is loaded as one TMA box.
"""

from collections.abc import Callable
from typing import Any, Unpack

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions
from prunecast.kernels.device.operator import Call
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import Packed, uncovered_rows
from prunecast.kernels.tile.config import RUN, compiled_config
from prunecast.kernels.tile.cuda.operator import Box, TensorMap, TileOperator, tensor_maps, tile_inputs
from prunecast.kernels.tile.cuda.work_image import FP8_ARGS, FP8_STAGE_COLUMNS, list_records, stage_slab
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.tile_rows import keeps_runs

ALIGN_BYTES = 16
"""Alignment in bytes of rows of B. Kind: definition, CUDA driver API, cuTensorMapEncodeTiled."""


def _check(plan: KernelPlan) -> None:
    if plan.tensor != "wgmma" or plan.inner is not None or plan.dtype != "fp8":
        raise BadInput(f"{plan.kernel}: wanted fp8 tiles on wgmma, got {plan.dtype} on {plan.tensor}")
    if plan.k % ALIGN_BYTES:
        raise BadInput(f"{plan.kernel}: fp8 needs a multiple of {ALIGN_BYTES} columns, got {plan.k}")
    if not keeps_runs(plan.tiles, RUN):
        raise BadInput(f"{plan.kernel}: fp8 tiles keep columns in runs of {RUN}, these do not")
    if uncovered_rows(plan.tiles).size:
        raise BadInput(f"{plan.kernel}: wanted every row of fp8 weights in a tile")
    compiled_config(plan)


class Fp8TileOperator(TileOperator):
    """Compiled plan of the fp8 tile kernel on one device. A and B are e4m3; the epilogue multiplies C by a
    scale per row of A and a scale per token.
    """

    name = "the fp8 tile kernel"

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor names and registers with which the kernel is compiled for a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        _check(plan)
        return tile_inputs(plan, {"FP8": 1, "TOKEN_MAJOR": 1}, options)

    @staticmethod
    def slab(plan: KernelPlan) -> Slab:
        """Return the order in which a k-step of packed weights holds the elements of its tile of A."""
        return stage_slab(plan.shape.block_m, FP8_STAGE_COLUMNS)

    @classmethod
    def records(cls, plan: KernelPlan) -> Packed:
        """Return the device arrays and launch argument of a plan, without weights, scales, bias and B. Raise
        BadInput in the same cases as `list_records`.
        """
        return list_records(plan, FP8_ARGS, cls.stages(plan))

    def __init__(self, plan: KernelPlan, packed: Packed, **options: Any) -> None:
        changes = {**(options.pop("changes", None) or {}), "TOKEN_MAJOR": 1}
        super().__init__(plan, packed, changes=changes, **options)
        self._token_scales = self._args.dtype.fields["token_scales"][1] // 8  # type: ignore[index]
        self._b_map = self._args["b_map"][0].view("u1")
        self._b_maps: dict[int, Callable[[int, int], TensorMap]] = {}

    def write(self, call: Call) -> None:
        """Write the addresses and sizes of a call into the kernel's parameter struct, and select the tensor
        maps of B and C.
        """
        super().write(call)
        tokens = call.c_tokens
        if tokens not in self._b_maps:
            box = Box(rows=self.plan.shape.block_n, tokens=RUN)
            self._b_maps[tokens] = tensor_maps(rows=tokens, tokens=self.plan.k, box=box, dtype="fp8")
        self._map_of_b, self._b_row_bytes = self._b_maps[tokens], call.b_row_bytes

    def place(self, b: int, c: int) -> None:
        """Write the addresses of B and C and the tensor map of B into the kernel's parameter struct, and set
        the tensor map of C.
        """
        super().place(b, c)
        self._b_map[:] = self._map_of_b(b, self._b_row_bytes).map

    def place_second(self, second: int, b: int) -> None:
        """Write the address `second` of the fp32 scales of the tokens, shape (tokens,), into the kernel's
        parameter struct.
        """
        self._words[self._token_scales] = second
