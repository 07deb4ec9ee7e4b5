"""`SmallOperator.compile(plan, weights)`: a small-n plan as a callable on the GPU.

Weights are packed in the order of the lanes' fragments; each block has a record of its work.
"""

from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.form import Form, FormOptions, plan_defines
from prunecast.kernels.device.launch import Place
from prunecast.kernels.device.operator import Operator
from prunecast.kernels.device.tile_stages import (
    Bits,
    Packed,
    item_columns,
    of_tiles,
    padded,
    row_lists,
    tile_stages,
    to_bits,
    uncovered_rows,
)
from prunecast.kernels.small_n.configs import row_unit
from prunecast.patterns.tile_map import IntArray, TileMap
from prunecast.plan.kernel_plan import DTYPE_BYTES, KernelPlan

SMALL_SOURCE = Path(__file__).parent / "small_n.cu"
_REGISTERS_PER_SM = 65536
"""Registers of an SM on every architecture from 8.0 on. Kind: datasheet, CUDA C++ Programming Guide,
technical specifications."""


GROUP = 16
"""Kept columns of a tensor instruction, a k16. Kind: definition, PTX ISA, mma m16n8k16."""
NO_COLUMN = 0xFFFF
"""Index of a missing column. Kind: CUDA source, `small_ring.cuh`."""


class PackedSmall(NamedTuple):
    """Packed weights of one layer. Tile t has k16s group_start[t] to group_start[t + 1], in order."""

    weights: Bits
    """(k16s, block_m / 16, 32, 8): values that lane 4 g + q holds of 16 rows. Columns 4 q, 4 q + 1 of row g,
    of row g + 8, then 4 q + 2, 4 q + 3 of both; columns are positions in the k16."""
    columns: Bits
    """(k16s, 16): columns of A, `NO_COLUMN` for none."""
    rows: IntArray
    """(tiles, block_m): row of C; -1 for none."""
    group_start: IntArray
    """(tiles + 1,) first k16 of each tile."""


def pack_small(tiles: TileMap, bits: Bits, block_m: int) -> PackedSmall:
    """Cut the kept columns of every tile into k16s.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    bits : (M, K) uint16, the weights; weights that the map does not keep are not read
    block_m : rows of a block

    Raises
    ------
    BadInput : the shape differs from the map's, a tile is too tall, or there are more than 65,535 columns
    """
    if tiles.k > NO_COLUMN:
        raise BadInput(f"the small-n kernel numbers columns in 16 bits: at most {NO_COLUMN}, got {tiles.k}")
    groups = tile_stages(tiles, block_m, GROUP)
    weights = np.zeros((groups.stage_start[-1], block_m // 16, 32, 8), np.uint16)
    for part, own in of_tiles(bits, tiles, groups):
        weights[part] = _by_lane(padded(own, block_m, GROUP))
    columns = groups.columns[:-1].astype(np.uint16)  # -1 becomes NO_COLUMN
    return PackedSmall(weights, columns, groups.rows, groups.stage_start)


def _by_lane(padded: Bits) -> Bits:
    """Convert (block_m, 16 k16s) to (k16s, fragments, 32, 8), the order in which lanes load fragments."""
    block_m, width = padded.shape
    # fragment, half h of its rows, row g, k16, quarter q, pair of columns p, column of the pair
    split = padded.reshape(block_m // 16, 2, 8, width // GROUP, 4, 2, 2)
    ordered = split.transpose(3, 0, 2, 4, 5, 1, 6)
    return ordered.reshape(width // GROUP, block_m // 16, 32, 8)


MOST_RANGES_IN_ARGS = 440
"""Number of ranges that fit into the launch arguments. Kind: CUDA source, `small_args.cuh`."""

SMALL_ARGS = np.dtype(
    [(name, "u8") for name in ("weights", "columns", "ranges", "places", "rows", "bias", "b", "c", "clock")]
    + [(name, "i8") for name in ("b_row_bytes", "c_row_bytes", "b_end")]
    + [(name, "i4") for name in ("b_shift", "tokens", "blocks_in_args", "c_tokens")]
    + [("first", "i4", (MOST_RANGES_IN_ARGS, 2))]
)
"""Layout of `SmallArgs`. Kind: CUDA source, `small_args.cuh`."""


class _SmallRecords(NamedTuple):
    """One entry per block: those of the plan, then blocks for rows in no tile, which have no k16s."""

    ranges: IntArray
    """(blocks, 2): first k16, number of k16s."""
    places: IntArray
    """(blocks, 2): row list, first token."""
    rows: IntArray
    """(row lists, block_m): rows of C, -1 for none."""

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch."""
        return int(self.ranges.shape[0])

    def arguments(self, plan: KernelPlan) -> npt.NDArray[np.void]:
        """Return one `SMALL_ARGS` record, complete except for addresses and row strides."""
        args = np.zeros(1, SMALL_ARGS)
        args["tokens"] = plan.n
        if self.blocks <= MOST_RANGES_IN_ARGS:
            args["blocks_in_args"] = 1
            args["first"][0, : self.blocks] = self.ranges
        return args


def small_records(plan: KernelPlan, packed: PackedSmall) -> _SmallRecords:
    """Return the records of a plan, whose items are whole tiles."""
    items = item_columns(plan, GROUP, "the small-n kernel")
    lists = row_lists(uncovered_rows(plan.tiles), plan.shape.block_m)
    tokens = np.arange(0, plan.n, plan.shape.block_n, dtype=np.int32)
    number = np.repeat(plan.tiles.tile_count + np.arange(lists.shape[0]), tokens.size)
    extra = np.stack((number, np.tile(tokens, lists.shape[0])), axis=1)
    ranges = np.stack((items.first, items.steps), axis=1)
    places = np.stack((items.tile, items.token), axis=1)
    return _SmallRecords(
        ranges=_int32(np.concatenate((ranges, np.zeros_like(extra)))),
        places=_int32(np.concatenate((places, extra))),
        rows=_int32(np.concatenate((packed.rows, lists))),
    )


def _int32(array: npt.NDArray[np.integer]) -> IntArray:
    return np.ascontiguousarray(array, np.int32)


class SmallOperator(Operator):
    """A plan of the small-n kernel on one device; B and C of any N are read and written in place."""

    name = "the small-n kernel"

    @staticmethod
    def form(plan: KernelPlan, **options: Unpack[FormOptions]) -> Form:
        """Return the form of a plan. Raises BadInput if no form of this kernel runs it."""
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
        return Form(SMALL_SOURCE, "small_n", defines, registers, fewer=True)

    @staticmethod
    def pack(plan: KernelPlan, weights: npt.NDArray[np.floating[Any]]) -> Packed:
        """Return a plan packed with its weights (M, K).

        Raises
        ------
        BadInput : as `pack_small` and `item_columns`
        """
        packed = pack_small(plan.tiles, to_bits(weights, plan.dtype), plan.shape.block_m)
        records = small_records(plan, packed)
        return Packed(
            arrays={
                "weights": packed.weights,
                "columns": packed.columns,
                "ranges": records.ranges,
                "places": records.places,
                "rows": records.rows,
            },
            args=records.arguments(plan),
            blocks=records.blocks,
        )

    @classmethod
    def runs_on(cls, plan: KernelPlan) -> range:
        """Return the range of compute capabilities, times ten, with cp.async."""
        return range(80, 1000)

    @classmethod
    def align_bytes(cls, plan: KernelPlan) -> int:
        """Return the alignment of contiguous rows, so that no rows are copied."""
        return row_unit(plan.n)

    def place(self, b: Place, c: Place) -> None:
        """Write B and C into the arguments; B may begin inside a 4-byte word."""
        _place_b(self._args, self.plan, b.pointer, b.row_bytes)
        self._args["c"], self._args["c_row_bytes"] = c


def _place_b(args: npt.NDArray[np.void], plan: KernelPlan, address: int, row_bytes: int) -> None:
    """Write the address of B into the argument, rounded down to the 4-byte words that the kernel reads."""
    element = DTYPE_BYTES[plan.dtype]
    shift = address % 4 // element
    args["b"], args["b_shift"], args["b_row_bytes"] = address - shift * element, shift, row_bytes
    args["b_end"] = shift + (plan.k - 1) * (row_bytes // element) + plan.n
