"""Group the layers of a model into launches, and pack the weights of each launch.

Layers that read the same x share a launch if they have the same kind of tiles and the same dtype. The
epilogue of a launch computes the activation or the gated unit of a feed-forward layer.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.patterns import TileMap
from prunecast.plan.misaligned import FEW_TOKENS
from prunecast.plan.tile_rows import stacked_tiles
from prunecast.torch.choose_layers import Conversion
from prunecast.torch.choose_tiles import Choice
from prunecast.torch.epilogue import GATED_ROWS, PLAIN, Epilogue, interleaved
from prunecast.torch.feed_forward import FeedForward
from prunecast.torch.find import Found, biases_of, matrix_of, sibling_groups
from prunecast.torch.fp8 import Fp8Product, fits_fp8
from prunecast.torch.layer_plans import layouts_for
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.packed import PackedProduct, interleaved_tiles


class Launch(NamedTuple):
    """Layers that are computed as one product by one launch, and the epilogue of the product."""

    choices: list[Choice]
    epilogue: Epilogue = PLAIN


def has_epilogues(choice: Choice, gpu: GpuSpec) -> bool:
    """Return whether the kernel of a layer can compute a gated unit or a residual sum in its epilogue.

    The kernels of GPUs without wgmma and of fp32 cannot.
    """
    return gpu.has_wgmma and choice.layer.module.weight.dtype is not torch.float32


def fusable(forwards: list[FeedForward], chosen: list[Choice], gpu: GpuSpec) -> list[FeedForward]:
    """Return the feed-forward layers that can be fused.

    All their layers must be sparse. Gate and up must have the same tiles, made of whole groups of rows, and
    their kernel must be able to compute gated units.
    """
    choices = {choice.layer.name: choice for choice in chosen}

    def may_gate(gate: Choice, up: Choice) -> bool:
        has_gates = all(each.two_of_four is None and has_epilogues(each, gpu) for each in (gate, up))
        return has_gates and _may_interleave(gate.tiles, up.tiles)

    whole = [each for each in forwards if choices.keys() >= {*each.first, each.last}]
    return [each for each in whole if not each.is_gated or may_gate(*(choices[name] for name in each.first))]


def _may_interleave(gate: TileMap, up: TileMap) -> bool:
    if any(not np.array_equal(getattr(gate, name), getattr(up, name)) for name in TileMap.ARRAYS):
        return False
    if np.any(gate.row_start % GATED_ROWS):
        return False
    rows = gate.row_index.reshape(-1, GATED_ROWS)
    return bool(np.array_equal(rows, rows[:, :1] // GATED_ROWS * GATED_ROWS + np.arange(GATED_ROWS)))


def joint_launches(found: list[Found], chosen: list[Choice], fused: list[FeedForward]) -> list[Launch]:
    """Group the layers into launches, such that layers that read the same x share a launch.

    Layers in tiles and layers with 2:4 never share a launch, and neither do layers of different dtypes. The
    launches of one dtype, 2:4 or not, are in the order of the model.
    """
    epilogues = {
        forward.first[0]: Epilogue(forward.activation, forward.is_gated, features_first=True)
        for forward in fused
    }
    of_kind: dict[tuple[bool, torch.dtype], dict[str, Choice]] = {}
    for choice in chosen:
        # T5 keeps some layers of an fp16 model in fp32
        kind = choice.two_of_four is not None, choice.layer.module.weight.dtype
        of_kind.setdefault(kind, {})[choice.layer.name] = choice
    launches = []
    for _, own in sorted(of_kind.items(), key=lambda entry: entry[0][0]):
        groups = ([own[layer.name] for layer in g if layer.name in own] for g in sibling_groups(found))
        launches += [Launch(group, epilogues.get(group[0].layer.name, PLAIN)) for group in groups if group]
    return launches


def pack_launches(launches: list[Launch], options: Conversion) -> list[tuple[Launch, PackedProduct]]:
    """Pack the weights of every launch, and return the launches with their products.

    Threads plan and pack them concurrently, since NumPy and torch release the GIL. The products are prepared
    for calls of `max_tokens`, and with `few_tokens` also of one token.
    """

    def packed(launch: Launch) -> PackedProduct:
        try:
            product = _product(launch, options)
        except BadInput as error:
            raise BadInput(f"{launch.choices[0].layer.name}: {error}") from None
        for tokens in options.prepared_tokens:
            product.prepare(tokens)
        return product

    products: list[PackedProduct] = []
    with ThreadPoolExecutor() as pool:
        for product in pool.map(packed, launches):
            products.append(product)
            if options.progress is not None:
                options.progress("packing", len(products), len(launches))
    return list(zip(launches, products, strict=True))


def _product(launch: Launch, options: Conversion) -> PackedProduct:
    gpu, max_tokens, few_tokens = options.gpu, options.max_tokens, options.few_tokens
    choices, epilogue = launch.choices, launch.epilogue
    bias = biases_of([choice.layer.module for choice in choices])
    maps = [choice.tiles for choice in choices]
    tiles = interleaved_tiles(maps[0], "interleaved") if epilogue.glu else stacked_tiles(maps)

    def joined(parts: list[torch.Tensor]) -> torch.Tensor:
        return interleaved(*parts) if epilogue.glu else torch.cat(parts)

    weight = joined([choice.kept(matrix_of(choice.layer.module)) for choice in choices])
    dtype, two_of_four = dtype_name(weight.dtype), choices[0].two_of_four is not None
    added = None if bias is None else joined(bias)
    own: dict[str, Any] = {"gpu": gpu, "epilogue": epilogue}
    fp8 = options.fp8 and not two_of_four and fits_fp8(weight, tiles)
    most = min(max_tokens, FEW_TOKENS) if fp8 else max_tokens
    with torch.no_grad():
        if fp8 and not few_tokens:
            return Fp8Product(weight, tiles, added, few=None, max_tokens=max_tokens, **own)
        layouts = layouts_for(tiles, dtype, gpu, most, few_tokens=few_tokens, two_of_four=two_of_four)
        product = PackedProduct(weight, tiles, added, max_tokens=most, layouts=layouts, **own)
        if fp8:
            return Fp8Product(weight, tiles, added, few=product, max_tokens=max_tokens, **own)
        return product
