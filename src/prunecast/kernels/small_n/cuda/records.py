"""`SmallOperator`: the kernel for few tokens.

Weights are packed in the order of the lanes' fragments. A record per block contains its range of k16s (16
kept columns each), its rows and its first token.
"""

from functools import lru_cache
from pathlib import Path
from typing import Unpack

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import CompileInputs, CompileOptions, plan_defines
from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.operator import Call, KernelOperator
from prunecast.kernels.device.packing import Slab
from prunecast.kernels.device.tile_stages import (
    Packed,
    TileStages,
    int_records,
    item_columns,
    row_lists,
    tile_stages,
)
from prunecast.kernels.small_n.configs import row_unit
from prunecast.kernels.small_n.kernel import SMALL_N
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

SMALL_SOURCE = Path(__file__).parent / "small_n.cu"
_REGISTERS_PER_SM = 65536
"""Registers of an SM on every architecture from 8.0 on. Kind: datasheet, CUDA C++ Programming Guide,
technical specifications."""


_READ_BYTES = 4
"""Bytes of the words in which B is read. Kind: CUDA source, `small_args.cuh`."""
GROUP = 16
"""Kept columns of a tensor instruction, a k16. Kind: definition, PTX ISA, mma m16n8k16."""
NO_COLUMN = 0xFFFF
"""Column index of padding. Kind: CUDA source, `small_ring.cuh`."""


@lru_cache
def k16_slab(block_m: int) -> Slab:
    """Return the memory layout of the weights of a k16 (16 kept columns), shape (block_m / 16, 32 lanes, 8).

    Of each 16 rows, lane 4 g + q holds columns 4 q and 4 q + 1 of row g, the same of row g + 8, then columns
    4 q + 2 and 4 q + 3 of both rows.
    """
    # Axes: 0 fragment, 1 half of its rows, 2 row g, 3 quarter q, 4 pair of columns, 5 column of the pair
    split = np.arange(block_m * GROUP).reshape(block_m // 16, 2, 8, 4, 2, 2)
    return Slab(split.transpose(0, 2, 3, 4, 1, 5).ravel(), (block_m // 16, 32, 8))


MOST_RANGES_IN_ARGS = 440
"""Maximum number of blocks whose ranges of k16s fit into the launch arguments. Kind: CUDA source,
`small_args.cuh`."""

SMALL_ARGS = argument_record(
    "weights columns ranges places rows bias b c clock",
    "b_row_bytes c_row_bytes b_end",
    "b_shift tokens blocks_in_args c_tokens",
    ("first", "i4", (MOST_RANGES_IN_ARGS, 2)),
)
"""Layout of `SmallArgs`. Kind: CUDA source, `small_args.cuh`."""


class SmallOperator(KernelOperator):
    """Compiled plan of the small-n kernel on one device. B and C are read and written in place, without
    copies to aligned rows, for any number of tokens.
    """

    name, writes_tokens, takes_one = "the small-n kernel", True, True
    heads = "ranges"
    _shift = -1
    """Number of elements between the start of the 4-byte word in which B begins and B itself, as last written
    to the parameter struct; -1 if the struct must be written again."""

    @staticmethod
    def compile_inputs(plan: KernelPlan, **options: Unpack[CompileOptions]) -> CompileInputs:
        """Return the source, preprocessor names and registers with which the kernel is compiled for a plan.
        Raise BadInput if this kernel cannot run the plan.
        """
        if (
            plan.kernel != "small-n"
            or np.any(np.diff(plan.work.block_start) > 1)
            or plan.work.parts.max(initial=1) > 1
        ):
            raise BadInput(f"the small-n kernel runs its own plans of whole tiles, got {plan.kernel}")
        form, resources = plan.config, plan.resources
        own = {
            "BLOCK_M": form.block_m,
            "BLOCK_N": form.block_n,
            "WARPS": form.warps,
            "DEPTH": form.depth,
            "UNIT": row_unit(plan.n),
            "BLOCKS_PER_SM": max(
                _REGISTERS_PER_SM // (resources.registers_per_thread * resources.threads), 1
            ),
        }
        defines, registers = {**own, **plan_defines(plan, **options)}, resources.registers_per_thread
        return CompileInputs(SMALL_SOURCE, "small_n", defines, registers, fewer=True)

    @staticmethod
    def stages(plan: KernelPlan) -> TileStages:
        """Return the rows and columns of the k16s of a plan. Raise BadInput if A has more than 65,535
        columns.
        """
        if plan.k > NO_COLUMN:
            raise BadInput(
                f"the small-n kernel numbers columns in 16 bits: at most {NO_COLUMN}, got {plan.k}"
            )
        return tile_stages(plan.tiles, plan.shape.block_m, GROUP, has_null=False)

    @staticmethod
    def slab(plan: KernelPlan) -> Slab:
        """Return the order in which a k16 of packed weights holds the elements of its tile of A."""
        return k16_slab(plan.shape.block_m)

    @classmethod
    def records(cls, plan: KernelPlan) -> Packed:
        """Return the device arrays and launch argument of a plan, without weights, bias and B.

        The blocks of the plan come first. Further blocks, for rows in no tile, have no k16s (groups of 16
        kept columns). Array `rows` (lists, block_m): row numbers of each tile, then those in no tile. Array
        `ranges` (blocks, 2): first k16, number of k16s. Array `places` (blocks, 2): list in `rows`, first
        token. Raises BadInput in the same cases as `item_columns`.
        """
        stages, args = cls.stages(plan), np.zeros(1, SMALL_ARGS)
        items = item_columns(plan, GROUP).with_other_rows(plan)
        ranges, blocks = int_records(first_k16=items.first, k16s=items.steps), items.tile.size
        args["tokens"] = plan.n
        if blocks <= MOST_RANGES_IN_ARGS:
            args["blocks_in_args"] = 1
            args["first"][0, :blocks] = ranges
        return Packed(
            arrays={
                "columns": stages.columns.astype(np.uint16),  # -1 becomes NO_COLUMN
                "ranges": ranges,
                "places": int_records(list=items.tile, first_token=items.token),
                "rows": row_lists(plan.tiles, stages),
            },
            args=args,
            blocks=blocks,
        )

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, on which the plan runs: 8.0 and up, which have
        cp.async.
        """
        return range(SMALL_N.compilers["mma"].least, 1000)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """Return the alignment in bytes that rows of B and C need. Contiguous rows of the plan's number of
        tokens always have this alignment, so that no rows are copied.
        """
        return row_unit(plan.n)

    def write(self, call: Call) -> None:
        """Write the addresses and sizes of a call into the kernel's parameter struct.

        The number of tokens that is written is `plan.n`. In a grouped launch of experts it is `call.tokens`,
        an upper bound of the columns of B that all experts need.
        """
        self._tokens = call.tokens if self.plan.experts > 1 else self.plan.n
        super().write(call._replace(tokens=self._tokens))
        self._row, self._shift = call.b_row_bytes // DTYPE_BYTES[self.plan.dtype], -1

    def place(self, b: int, c: int) -> None:
        """Write the addresses of B and C and the end of B into the kernel's parameter struct.

        B may begin at any element: its address is rounded down to a 4-byte word, and `b_shift` counts the
        elements in between.
        """
        element = DTYPE_BYTES[self.plan.dtype]
        shift = b % _READ_BYTES // element
        if shift != self._shift:
            self._shift = self._args["b_shift"] = shift
            self._args["b_end"] = shift + (self.plan.k - 1) * self._row + self._tokens
        super().place(b - shift * element, c)
