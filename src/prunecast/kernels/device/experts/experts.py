"""Launches of the kernels around the grouped products of experts, on device addresses.

    count_tokens  count the tokens of each expert; only if several blocks route the tokens
    route_tokens  assign a column of B to each (token, expert) pair; columns of one expert are contiguous and
                  padded to whole blocks
    list_items    write the work items of one or two products, from the columns of each expert
    gate_rows     compute activation(gate) * up, and store it over the gate
    sum_experts   add the outputs of a token's experts, weighted by the router

A place is one (token, expert) pair; the places of a token are consecutive. The host knows only the maximum
number of columns and work items. `list_items` writes the actual items on the device, in the order of the
plan, because they depend on the number of tokens of each expert.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.compile_inputs import end_defines
from prunecast.kernels.device.launch import argument_record
from prunecast.kernels.device.operator import KernelOperator
from prunecast.kernels.device.pass_launch import PassLaunch, record
from prunecast.kernels.device.tile_stages import Packed
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.expert_items import RANGES_TOGETHER, most_ranges, one_item_per_tile
from prunecast.plan.kernel_plan import KernelPlan, Schedule

MOST_EXPERTS = 1024
"""Maximum number of experts of a layer, and threads of a block of `count_tokens`, `route_tokens` and
`list_items`. Kind: CUDA source, `experts.cu`."""
MOST_ROUTE_BLOCKS = 32
"""Maximum number of blocks that route tokens, limited because each block reads the token counts of all
blocks. Kind: choice, one (token, expert) pair per thread for 4096 tokens with 8 experts each."""
PASS_THREADS = 256
"""Threads of a block of `gate_rows` and `sum_experts`. Kind: choice, a block then processes 2048 features."""
_CHUNK, _GATE_ROWS = 8, 4
"""Elements that a thread loads at once; rows of a thread of `gate_rows`. Kind: CUDA source, `experts.cu`."""


ROUTE_ARGS = argument_record("chosen column source first counts", "", "places per_token experts block_n")
_ITEM_ARGS = argument_record(
    "first first_tile heads items ranges places count", "", "experts block_n together lists room most"
)
LIST_ARGS = np.dtype([("of", _ITEM_ARGS, (2,)), ("second", "i4")], align=True)
"""Layout of `ListArgs`, of two products. Kind: CUDA source, `experts.cu`."""
GATE_ARGS = argument_record("c columns", "row_bytes", "rows across lanes")
SUM_ARGS = argument_record("y column shares out", "y_row_bytes out_row_bytes", "per_token features")
"""Layouts of the arguments. Kind: CUDA source, `experts.cu`."""


def _launch(
    entry: str, args: npt.NDArray[np.void], blocks: int, threads: int, changes: Mapping[str, int]
) -> PassLaunch:
    defines = tuple({"THREADS": threads, **changes}.items())
    source = "experts/experts.cu"
    return PassLaunch(source, entry, args, blocks, threads, 12 * threads, defines, any_arch=True)


def route_blocks(places: int) -> int:
    """Return the number of thread blocks that route `places` (token, expert) pairs."""
    return max(min(places // MOST_EXPERTS, MOST_ROUTE_BLOCKS), 1)


def route_tokens(
    places: int, per_token: int, experts: int, block_n: int, **pointers: int
) -> list[PassLaunch]:
    """Return the launches that assign a column of B to every place, a (token, expert) pair.

    Parameters
    ----------
    places : number of pairs, tokens * `per_token`
    per_token : experts of a token
    block_n : columns of a block; the columns of each expert are padded to whole blocks
    pointers : device addresses. Input: `chosen` (places,) int64, the expert of each place. Outputs, int32:
        `column` (places,); `source` (columns,), the token of each column, or -1 for padding; and `first`
        (experts + 1,), the first column of each expert, then the number of columns. Scratch: `counts`
        (`route_blocks(places)`, experts) int32

    Raises
    ------
    BadInput : more than `MOST_EXPERTS` experts
    """
    if experts > MOST_EXPERTS:
        raise BadInput(f"a layer may have at most {MOST_EXPERTS} experts, got {experts}")
    blocks = route_blocks(places)
    sizes = {"places": places, "per_token": per_token, "experts": experts, "block_n": block_n}
    args = record(ROUTE_ARGS, **{**sizes, **pointers, **({"counts": 0} if blocks == 1 else {})})
    names = ("route_tokens",) if blocks == 1 else ("count_tokens", "route_tokens")
    return [_launch(name, args, blocks, MOST_EXPERTS, {}) for name in names]


class ItemLists(NamedTuple):
    """Sizes of the buffers for the work items of a grouped launch."""

    experts: int
    block_n: int
    lists: int
    """Number of lists, one for each block; 0 if each item has its own block."""
    room: int
    """Maximum number of items of a list."""
    most: int
    """Maximum number of items of the launch."""

    @classmethod
    def of(cls, plan: KernelPlan, places: int) -> "ItemLists":
        """Return the sizes that suffice for every distribution of `places` (token, expert) pairs over
        experts.
        """
        ranges = most_ranges(places, plan.experts, plan.shape.block_n)
        tiles = int(np.diff(first_tiles(plan)).max())
        lists = plan.blocks if plan.schedule is Schedule.STATIC else 0
        return cls(
            plan.experts, plan.shape.block_n, lists, -(-tiles * ranges // max(lists, 1)), tiles * ranges
        )


def first_tiles(plan: KernelPlan) -> IntArray:
    """Return the first tile of each expert, then the number of tiles: (experts + 1,) int32."""
    of_tile = plan.tiles.row_index[plan.tiles.row_start[:-1]] // plan.c_rows
    return np.searchsorted(of_tile, np.arange(plan.experts + 1)).astype(np.int32)


def expert_records(kind: type[KernelOperator], plan: KernelPlan, places: int) -> Packed:
    """Return the arrays that a grouped launch reads in addition to weights and B, and buffers for its items.

    Only `list_items` knows the tokens of each expert, so that it completes the item records on the device.
    The array `heads`, (tiles, 2) int32, has the part of a record that depends only on the tile: first stage
    of the packed weights and number of k-steps (tile kernel, `tile_args.cuh`), or first k16 and number of
    k16s (small-n, `small_args.cuh`). It is `ProductItems.heads` in `experts.cu`.

    Parameters
    ----------
    kind : operator class of the plan's kernel
    places : number of (token, expert) pairs
    """
    packed, lists = kind.records(one_item_per_tile(plan)), ItemLists.of(plan, places)
    rows, args = packed.arrays["rows"], packed.args.copy()
    arrays = {
        "columns": packed.arrays["columns"],
        "rows": np.where(rows < 0, -1, rows % plan.c_rows).astype(np.int32),
        "heads": np.ascontiguousarray(packed.arrays[kind.heads][:, :2]),
        "first_tile": first_tiles(plan),
    }
    args["blocks_in_args"] = 0  # the kernel loads its items, which the host does not know at launch
    if not lists.lists:
        workspace = dict.fromkeys(("ranges", "places"), (2 * lists.most, "i4"))
        return Packed(arrays, args, lists.most, {**workspace, "count": (1, "i4")})
    # With GROUPED, the tile kernel reads this field as the capacity of a list, see `tile_args.cuh`
    args["line_chunks"] = lists.room
    workspace = {"items": (4 * lists.lists * lists.room, "i4"), "splits": (4, "i4")}
    return Packed(arrays, args, lists.lists, workspace)


def product_items(lists: ItemLists, **pointers: int) -> npt.NDArray[np.void]:
    """Return the part of the argument of `list_items` that describes one product.

    Parameters
    ----------
    pointers : device addresses. Inputs: `first` from `route_tokens`; `first_tile` and `heads` from
        `expert_records`. Outputs: `items` if blocks have lists of items; otherwise `ranges`, `places` and
        `count`
    """
    return record(_ITEM_ARGS, **lists._asdict(), together=RANGES_TOGETHER, **pointers)


def list_items(*products: npt.NDArray[np.void]) -> PassLaunch:
    """Return the launch that writes the work items of one or two products, in the order of the plan.

    `products` are results of `product_items`; `plan.expert_items` defines the order.
    """
    args = np.zeros(1, LIST_ARGS)
    blocks = [-(-int(each["most"][0]) // MOST_EXPERTS) for each in products]
    args["of"][0, : len(products)] = np.concatenate(products)
    args["second"] = blocks[0]
    return _launch("list_items", args, sum(blocks), MOST_EXPERTS, {})


def gate_rows(
    activation: str, dtype: str, *, c: int, columns: int, row_bytes: int, rows: int, most: int
) -> PassLaunch:
    """Return the launch that computes activation(gate) * up and stores it over the gate.

    Parameters
    ----------
    activation : one of `compile_inputs.ACTIVATIONS`
    dtype : `fp16` or `bf16`
    c : address of C (2 * rows, most): `rows` rows of the gate product, then `rows` rows of the up product
    columns : device address of an int32, the number of columns that are used
    row_bytes : row stride of C in bytes
    most : maximum number of columns
    """
    lanes = min(-(-most // _CHUNK), PASS_THREADS)
    across, block_rows = -(-most // (_CHUNK * lanes)), _GATE_ROWS * (PASS_THREADS // lanes)
    sizes = {
        "c": c,
        "columns": columns,
        "row_bytes": row_bytes,
        "rows": rows,
        "across": across,
        "lanes": lanes,
    }
    changes = end_defines(activation, bias=False, dtype=dtype)
    blocks = across * -(-rows // block_rows)
    return _launch("gate_rows", record(GATE_ARGS, **sizes), blocks, PASS_THREADS, changes)


def sum_experts(tokens: int, dtype: str, *, fp32_shares: bool, features: int, **values: int) -> PassLaunch:
    """Return the launch that adds the outputs of each token's experts, weighted by the router.

    Parameters
    ----------
    dtype : format of the outputs, `fp16` or `bf16`
    fp32_shares : True if the router weights `shares` are fp32; otherwise they have the format of the outputs
    values : addresses of `y` (columns, features), of `column` as written by `route_tokens`, of `shares`
        (tokens, per_token) and of the result `out` (tokens, features); and the numbers `per_token`,
        `y_row_bytes` and `out_row_bytes`
    """
    blocks = tokens * -(-features // (_CHUNK * PASS_THREADS))
    own = {"SHARES_FP32": int(fp32_shares), **end_defines("none", bias=False, dtype=dtype)}
    args = record(SUM_ARGS, features=features, **values)
    return _launch("sum_experts", args, blocks, PASS_THREADS, own)
