"""Launches of a layer of experts: up to eight kernels, none of which waits for the host.

    count_tokens   number of tokens of each expert; left out for few tokens, where route_tokens counts them
    route_tokens   assign each (token, expert) pair a column of B; columns of an expert are contiguous
    list_items     list the work items of both products
    transpose      x (tokens, H) to B (H, columns), gathered
    product        gate and up of all experts, (2 I, columns)
    gate_rows      activation(gate) * up, in place: the B (I, columns) of the next product
    product        down of all experts, (columns, H)
    sum_experts    y (tokens, H), the weighted sum of the outputs of each token's experts

The first call for a number of tokens plans and compiles. Later calls are legal in CUDA graphs. The list of
work items is one buffer per product, which every call overwrites. A layer must therefore not run on two
streams at the same time.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from prunecast.kernels import KERNELS, KernelPlan
from prunecast.kernels.device.experts.experts import (
    ItemLists,
    expert_records,
    gate_rows,
    list_items,
    product_items,
    route_blocks,
    route_tokens,
    sum_experts,
)
from prunecast.kernels.device.operator import Call, KernelOperator
from prunecast.kernels.device.pass_launch import PassLaunch
from prunecast.kernels.device.transpose.transpose import (
    ALIGN_BYTES,
    ELEMENT_BYTES,
    Gather,
    Rows,
    transpose_launch,
)
from prunecast.plan.expert_items import most_ranges
from prunecast.plan.misaligned import planned_tokens
from prunecast.torch.cuda.launches import prepared_once
from prunecast.torch.cuda.stream import stream_of
from prunecast.torch.epilogue import ExpertsCall
from prunecast.torch.layer_plans import ExpertTokens, expert_plans
from prunecast.torch.layer_table import known_layer
from prunecast.torch.weight_layouts import layout_of

_POINTERS = ("heads", "first_tile", "items", "ranges", "places")


class GroupedProduct(NamedTuple):
    """Prepared launch of one product of all experts."""

    operator: KernelOperator
    image: int
    """Index of the packed weights that the launch reads."""
    lists: ItemLists

    @classmethod
    def of(
        cls, planned: tuple[KernelPlan, int], places: int, device: int, **changes: int
    ) -> "GroupedProduct":
        """Return the launch for `planned`, a plan and the index of the packed weights that its kernel reads.

        Parameters
        ----------
        places : number of (token, expert) pairs
        changes : preprocessor macros of the kernel
        """
        plan, image = planned
        kind: type[KernelOperator] = KERNELS[plan.kernel].compilers[plan.tensor].load()
        operator = kind(plan, expert_records(kind, plan, places), device=device, changes=changes)
        return cls(operator, image, ItemLists.of(plan, places))

    def items(self, first: int) -> npt.NDArray[np.void]:
        """Return the arguments of `list_items` for this product.

        `first` is the address of an array with the first column of B of each expert.
        """
        arrays = self.operator.arrays
        pointers = {name: arrays[name].pointer for name in _POINTERS if name in arrays}
        count = arrays["splits" if self.lists.lists else "count"].pointer
        return product_items(self.lists, first=first, count=count, **pointers)


class PreparedExperts(NamedTuple):
    """Prepared launches of the gate-up and the down product of a layer of experts, for a number of tokens."""

    gate_up: GroupedProduct
    down: GroupedProduct
    dtype: str

    def __call__(self, call: ExpertsCall) -> torch.Tensor:
        """Enqueue all launches on torch's current stream, and return y."""
        device, (tokens, features), per_token = call.x.device, call.x.shape, call.chosen.shape[1]
        experts, block_n = self.gate_up.lists.experts, self.gate_up.lists.block_n
        places = tokens * per_token
        columns = block_n * most_ranges(places, experts, block_n)
        stream = stream_of(device.index)
        chosen = call.chosen.to(torch.int64).contiguous()
        shares = call.shares if call.shares.dtype == call.x.dtype else call.shares.float()
        shares, x = shares.contiguous(), call.x.contiguous()
        x = x.clone() if x.data_ptr() % ALIGN_BYTES else x
        sizes = (places, columns, experts + 1, route_blocks(places) * experts)
        column, source, first, counts = (chosen.new_empty(size, dtype=torch.int32) for size in sizes)
        used = first[experts:].data_ptr()
        inner = self.gate_up.operator.plan.c_rows // 2
        x_t, c = x.new_empty((features, columns)), x.new_empty((2 * inner, columns))
        y, out = x.new_empty((columns, features)), x.new_empty((tokens, features))
        row_bytes = columns * ELEMENT_BYTES

        def enqueue(launch: PassLaunch) -> None:
            launch.enqueue(device.index, stream)

        given = {"chosen": chosen.data_ptr(), "column": column.data_ptr(), "source": source.data_ptr()}
        given |= {"first": first.data_ptr(), "counts": counts.data_ptr()}
        for launch in route_tokens(places, per_token, experts, block_n, **given):
            enqueue(launch)
        enqueue(list_items(*(each.items(first.data_ptr()) for each in (self.gate_up, self.down))))
        gather = Gather(source.data_ptr(), used)
        given_rows = Rows(x.data_ptr(), features * ELEMENT_BYTES, tokens, features)
        enqueue(transpose_launch(given_rows, Rows(x_t.data_ptr(), row_bytes, features, columns), gather))
        weights = call.gate_up[self.gate_up.image].data_ptr()
        wide = Call(weights, 0, row_bytes, row_bytes, columns)
        self.gate_up.operator.at(wide, x_t.data_ptr(), c.data_ptr(), stream)
        unit = {"c": c.data_ptr(), "columns": used, "row_bytes": row_bytes, "rows": inner, "most": columns}
        enqueue(gate_rows(call.activation, self.dtype, **unit))
        weights = call.down[self.down.image].data_ptr()
        narrow = Call(weights, 0, row_bytes, features * ELEMENT_BYTES, columns, columns)
        self.down.operator.at(narrow, c.data_ptr(), y.data_ptr(), stream)
        given = {"y": y.data_ptr(), "column": column.data_ptr(), "shares": shares.data_ptr()}
        given |= {"out": out.data_ptr(), "features": features, "per_token": per_token}
        given |= dict.fromkeys(("y_row_bytes", "out_row_bytes"), features * ELEMENT_BYTES)
        fp32 = shares.dtype == torch.float32
        enqueue(sum_experts(tokens, self.dtype, fp32_shares=fp32, **given))
        return out


def run_experts(call: ExpertsCall) -> torch.Tensor:
    """Return y of a call on a GPU. Raise BadInput in the same cases as `ExpertsCall.check` and
    `prepared_experts`.
    """
    call.check()
    if not call.chosen.numel():
        return torch.zeros_like(call.x)
    with torch.cuda.device(call.x.device):
        return prepared_experts(call)(call)


def prepared_experts(call: ExpertsCall) -> PreparedExperts:
    """Return the launches for a call; the first call with its sizes prepares them.

    Raise BadInput if the GPU has no grouped launch, or in the same cases as `prepared_once`.
    """
    layers = [known_layer(plan, tiles, call.x.dtype, call.gpu) for _, tiles, plan in call.products]
    experts, device = layers[1].tiles.m // call.x.shape[1], call.x.device
    sizes = ExpertTokens(planned_tokens(len(call.x)), call.chosen.shape[1], experts)
    dtype, gpu = layers[0].dtype, layers[0].gpu

    def prepare() -> PreparedExperts:
        layouts = [[layout_of(image) for image in images] for images, _, _ in call.products]
        plans = expert_plans([layer.tiles for layer in layers], sizes, dtype, gpu, layouts)
        places = sizes.tokens * sizes.per_token
        gate_up = GroupedProduct.of(plans[0], places, device.index)
        down = GroupedProduct.of(plans[1], places, device.index, TOKEN_MAJOR=1)
        _load_passes(call.activation, dtype, sizes, device.index)
        return PreparedExperts(gate_up, down, dtype)

    key = (*call.plans, sizes, device.index, len(call.gate_up))
    found: PreparedExperts = prepared_once(key, f"{len(call.x)} tokens", device, gpu, prepare)
    return found


def _load_passes(activation: str, dtype: str, sizes: ExpertTokens, device: int) -> None:
    """Compile and load the kernels that run around the two products.

    CUDA does not allow this during the capture of a graph.
    """
    unit, features = dict.fromkeys(("c", "columns", "row_bytes"), 0), 8
    rows = Rows(0, 2 * features, 8, features)
    launches = [
        *route_tokens(sizes.tokens * sizes.per_token, sizes.per_token, sizes.experts, 8),
        list_items(product_items(ItemLists(sizes.experts, 8, 0, 0, 1))),
        gate_rows(activation, dtype, rows=1, most=8, **unit),
        *(sum_experts(1, dtype, fp32_shares=fp32, features=features) for fp32 in (False, True)),
        transpose_launch(rows, rows, Gather(0, 0)),
    ]
    for launch in launches:
        launch.on(device)
