"""A plan's work list as the tile kernel reads it: two records of four numbers per item."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.tile_stages import ItemColumns, item_columns
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import BlockShape, KernelPlan, Schedule

MOST_BLOCKS_IN_ARGS = 160
"""Blocks whose first item and list bounds fit into the launch arguments. Kind: CUDA source,
`tile_args.cuh`."""
FEWEST_STEPS = 2
"""K-steps that every item has. Kind: CUDA source, `tile_list.cuh`."""
WHOLE, PART, OWNER = 0, 1, 2
"""What an item is in a split. Kind: CUDA source, `tile_args.cuh`."""


class WorkImage(NamedTuple):
    """Records of all items, in the order of the plan; the fields are those of `tile_args.cuh`."""

    items: IntArray
    """(items, 4): first stage; k-steps, 16-column groups of the last, owner or not; tile; first token."""
    splits: IntArray
    """(items, 4): workspace slot, parts to wait for, reduction group, what to do."""
    start: IntArray
    """(blocks + 1,): items of block b; empty where every block has the item of its own number."""
    slots: int
    """Partial tiles of C in the workspace."""
    groups: int
    """Split tiles of C."""

    def workspace(self, shape: BlockShape, counters_per_group: int) -> dict[str, tuple[int, str]]:
        """Sums and counters of split tiles, as `Packed.workspace`."""
        tile_floats = shape.block_m * shape.block_n
        return {
            "partials": (max(self.slots, 1) * tile_floats, "f4"),
            "counters": (max(self.groups, 1) * counters_per_group, "u4"),
        }

    def into(self, args: npt.NDArray[np.void]) -> None:
        """Write list bounds and first items into launch arguments, for plans that walk lists."""
        if not self.start.size:
            return
        args["blocks_in_args"] = self.start.size - 1
        args["start"][0, : self.start.size] = self.start
        has_items = np.flatnonzero(np.diff(self.start))
        args["first"][0, has_items] = self.items[self.start[has_items]]


def work_image(plan: KernelPlan) -> WorkImage:
    """The records of `plan`.

    Raises
    ------
    BadInput : as `item_columns`, or more persistent blocks than fit into the launch arguments
    """
    if plan.schedule is Schedule.STATIC and plan.blocks > MOST_BLOCKS_IN_ARGS:
        raise BadInput(f"{plan.kernel}: at most {MOST_BLOCKS_IN_ARGS} persistent blocks, got {plan.blocks}")
    items = item_columns(plan, plan.shape.block_k, "the tile kernel")
    in_plan = plan.schedule is Schedule.STATIC
    return WorkImage(
        items=_items(items, plan.shape.block_k),
        splits=_splits(items),
        start=plan.work.block_start if in_plan else np.zeros(0, np.int32),
        slots=items.slots,
        groups=items.groups,
    )


def _items(items: ItemColumns, block_k: int) -> IntArray:
    # Items that are filled up end in the null stage, of which one group is enough
    last = items.columns - (items.steps - 1) * block_k
    groups_of_last = np.where(items.steps >= FEWEST_STEPS, -(-last // 16), 1)
    what = items.steps | groups_of_last << 24 | items.is_owner.astype(np.int64) << 27
    return _int32(items.first, what, items.tile, items.token)


def _splits(items: ItemColumns) -> IntArray:
    action = np.where(items.is_part, np.where(items.is_owner, OWNER, PART), WHOLE)
    return _int32(items.slot, items.waits, items.group, action)


def _int32(*columns: npt.NDArray[np.int64]) -> IntArray:
    return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int32))


_LISTS = [("first", "i4", (MOST_BLOCKS_IN_ARGS, 4)), ("start", "i4", (MOST_BLOCKS_IN_ARGS + 4,))]
"""Lists in the argument of a kernel. Kind: definition, `TileArgs` of tile_args.cuh."""


def list_record(pointers: str, numbers: str, *behind: tuple[str, str, tuple[int]]) -> np.dtype[np.void]:
    """The argument of a kernel that walks lists of items: names of its pointers and of its numbers of four
    bytes, with the bytes of rows of B and C between them, and what stands behind the lists.
    """
    words = [(name, "u8") for name in pointers.split()]
    rows = [("b_row_bytes", "i8"), ("c_row_bytes", "i8")]
    return np.dtype([*words, *rows, *((name, "i4") for name in numbers.split()), *_LISTS, *behind])


TILE_ARGS = list_record(
    "weights columns items splits rows b c bias partials counters clock",
    "tokens null_stage blocks_in_args c_tokens line_chunks pixel_chunks",
    ("strides", "i4", (4,)),
)
"""The bytes of `TileArgs`; `first` is 16-byte aligned there, and `strides` is read where there are some.
Kind: CUDA source, `tile_args.cuh`."""
