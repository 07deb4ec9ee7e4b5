"""Create the modules that replace layers of a model, with weights packed for the kernels."""

from typing import NamedTuple

import torch
from torch import nn

from prunecast.torch.choose_layers import ChosenLayers, Conversion
from prunecast.torch.choose_tiles import Choice
from prunecast.torch.conv import SparseConv2d, sparse_convs
from prunecast.torch.experts import PARTS, ExpertMatrix, ExpertStack, SparseExperts, per_token
from prunecast.torch.feed_forward import FeedForward
from prunecast.torch.find import Found, is_convolution, matrix_of
from prunecast.torch.layer_plans import ExpertTokens, expert_layouts
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.network import Traced, dense_in_planes, ends_of
from prunecast.torch.packed import PackedProduct
from prunecast.torch.products import Launch, fusable, joint_launches, pack_launches
from prunecast.workload.graph.convolutions import border_of


class PackedLayers(NamedTuple):
    """Modules with packed weights that replace layers of a model."""

    products: list[tuple[Launch, PackedProduct]]
    fused: list[FeedForward]
    """Feed-forward layers whose activations are computed in epilogues."""
    experts: list[tuple[ExpertStack, SparseExperts]]
    convs: dict[str, SparseConv2d]
    """Sparse convolutions, and dense ones between them that run on the same kernel."""
    sparse_convs: int

    @property
    def launches(self) -> int:
        """Number of launches of sparse products, including sparse convolutions and products of experts."""
        return len(self.products) + self.sparse_convs + len(PARTS) * len(self.experts)


def pack_layers(
    model: nn.Module, found: list[Found], network: Traced, chosen: ChosenLayers, options: Conversion
) -> PackedLayers:
    """Pack the weights of the chosen layers, and of dense convolutions between them, into modules."""
    gpu = options.gpu
    filters = {layer.name: tiles for layer, tiles, _ in chosen.choices if is_convolution(layer.module)}
    border = border_of(model.get_submodule(name).padding[0] for name in filters)
    between = dense_in_planes(model, network, filters, border) if filters else {}
    convs = sparse_convs(model, {**filters, **between}, gpu, ends_of(model, network.sites), border)
    linear = [choice for choice in chosen.choices if choice.layer.name not in filters]
    fused = fusable(chosen.forwards, linear, gpu)
    launches = joint_launches(found, linear, fused) if options.fuse else [Launch([each]) for each in linear]
    products = pack_launches(launches, options)
    experts = [(stack, _sparse_experts(stack, parts, options)) for stack, parts in chosen.experts]
    return PackedLayers(products, fused, experts, convs, len(filters))


def _sparse_experts(stack: ExpertStack, parts: list[Choice], options: Conversion) -> SparseExperts:
    gpu, max_tokens, few_tokens = options.gpu, options.max_tokens, options.few_tokens
    experts = len(getattr(stack.module, PARTS[0]))
    most = ExpertTokens(max_tokens, per_token(stack.module, experts), experts)

    def packed(choice: Choice, part: str) -> ExpertMatrix:
        weight, tiles = matrix_of(choice.layer.module), choice.tiles
        layouts = expert_layouts(tiles, dtype_name(weight.dtype), gpu, most, few_tokens=few_tokens)
        product = PackedProduct(weight, tiles, None, gpu=gpu, max_tokens=max_tokens, layouts=layouts)
        return ExpertMatrix(product, tiles.pattern, tuple(getattr(stack.module, part).shape))

    with torch.no_grad():
        found = SparseExperts(stack.module, *map(packed, parts, PARTS))
    for tokens in options.prepared_tokens:
        found.prepare(tokens, most.per_token)
    return found
