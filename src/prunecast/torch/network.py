"""Rewrite a convolutional network such that images stay in planes between the convolutions of this package.

`trace` makes a graph of the model with torch.fx and finds its convolutions. `folded_norms` folds batch norms
into the convolutions before them, `ends_of` returns activations and residual sums for the epilogues of
convolutions, and `rewrite` replaces the model's `forward` by code in which images stay in planes
(`planes.py`):

    conv -> norm -> relu                       becomes  conv (epilogue)
    conv -> norm -> sum with x -> relu         becomes  conv (x is its second input; epilogue)
    relu -> max pool of images                 becomes  part of the copy into planes
    pool, upsample, concatenate, elementwise   become   passes over planes

All other operations read and write images. The model keeps its submodules, so that names, `state_dict` and
hooks do not change. Submodules whose work another kernel does are no longer called.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from prunecast.patterns import TileMap
from prunecast.patterns.tiling import dense_tile_map
from prunecast.torch.conv import Ends, SparseConv2d
from prunecast.torch.epilogue import activation_of
from prunecast.torch.find import is_convolution, matrix_of, runs_on_grid
from prunecast.torch.passes import SUMS, NodeOfPass, as_images, into_planes, pass_of, window_of
from prunecast.workload.graph.convolutions import fits_planes, join_dense_convolutions
from prunecast.workload.graph.runtimes import DENSE_HEIGHT
from prunecast.workload.torch_model.read_module import ModuleTracer

FUSED = ("relu", "gelu", "silu", "gelu-tanh")
"""Activations that are fused into the epilogue of a convolution."""
_ONE = 2.0**-11
"""A scale counts as 1 if it differs from 1 by at most this. Kind: definition, half of the spacing of fp16
numbers from 1 to 2.
"""


class Site(NamedTuple):
    """Call of a convolution, with the following nodes that its kernel computes, too."""

    name: str
    conv: fx.Node
    norm: str | None
    """Name of the following batch norm that is folded into the convolution; None if no norm is folded."""
    other: fx.Node | None
    """Second operand of a following sum that the kernel computes; None if it computes no sum."""
    activation: str
    end: fx.Node
    """Last node that the kernel computes, or the convolution itself: the kernel writes its value."""

    @property
    def fused(self) -> tuple[str | None, bool, str]:
        """Norm, presence of a sum, and activation; nothing is fused unless all calls of a module agree."""
        return self.norm, self.other is not None, self.activation

    def before_end(self) -> Iterator[fx.Node]:
        """Yield the nodes from the convolution up to `end`, without `end`."""
        node = self.conv
        while node is not self.end:
            yield node
            node = next(iter(node.users))


class Traced(NamedTuple):
    """Graph of a model with its convolutions; or `why`, the reason for which the model cannot be traced."""

    graph: fx.Graph | None = None
    sites: tuple[Site, ...] = ()
    why: str = ""


def trace(model: nn.Module) -> Traced:
    """Trace a model with torch.fx; find its convolutions and the operations that can be fused into them."""
    if model.training:
        return Traced(why="it is in training mode, call eval() first")
    try:
        graph = ModuleTracer().trace(model)
    except Exception as error:  # e.g. control flow that depends on data
        reason = [*str(error).splitlines(), ""][0]
        return Traced(why=f"torch.fx cannot trace it ({type(error).__name__}: {reason:.80})")
    return Traced(graph, tuple(sites_of(graph, model)))


def sites_of(graph: fx.Graph, model: nn.Module) -> list[Site]:
    """Return all calls of convolutions, with the operations after them that can be fused.

    If a module is called several times, nothing is fused unless the same operations follow every call.
    """
    modules = dict(model.named_modules())
    place = {node: number for number, node in enumerate(graph.nodes)}
    taken: set[fx.Node] = set()
    found: list[Site] = []
    for node in reversed(graph.nodes):  # if two convolutions are added, the later one adds in its epilogue
        if node.op == "call_module" and is_convolution(modules[node.target]):
            site = _site(node, modules, place, taken)
            taken |= {*site.before_end(), site.end}
            found.append(site)
    kinds, norms = Counter(site.name for site in found), Counter(site.norm for site in found)
    same = Counter((site.name, site.fused) for site in found)
    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    return [
        site
        if same[site.name, site.fused] == kinds[site.name]
        and (site.norm is None or norms[site.norm] == calls[site.norm] == kinds[site.name])
        else Site(site.name, site.conv, None, None, "none", site.conv)
        for site in reversed(found)
    ]


def _site(
    conv: fx.Node, modules: Mapping[str, nn.Module], place: Mapping[fx.Node, int], taken: set[fx.Node]
) -> Site:
    end, norm, other, activation = _after_identities(conv, modules), None, None, "none"
    module = modules[conv.target]
    if (
        (after := _only_user(end)) is not None
        and _is_folded(after, modules)
        and module.padding_mode == "zeros"
    ):
        end, norm = _after_identities(after, modules), str(after.target)
    after = _only_user(end)
    if after is not None and after not in taken and module.stride == (1, 1) and after.target in SUMS:
        operands = [each for each in after.args if isinstance(each, fx.Node)]
        if len(operands) == len(after.args) == 2 and operands[0] is not operands[1] and not after.kwargs:
            end, other = after, operands[1] if operands[0] is end else operands[0]
    if (after := _only_user(end)) is not None:
        name = activation_of_node(after, modules)
        if name is not None and name in FUSED:
            end, activation = after, name
    return Site(str(conv.target), conv, norm, other, activation, end)


def _after_identities(node: fx.Node, modules: Mapping[str, nn.Module]) -> fx.Node:
    """Return the last of the `nn.Identity` nodes that follow a node; the node itself if there are none.

    Folding a norm before tracing leaves an `nn.Identity`.
    """
    while (after := _only_user(node)) is not None and type(modules.get(str(after.target))) is nn.Identity:
        node = after
    return node


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_folded(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Return whether the node is a batch norm that can be folded: with fixed statistics, weight and bias."""
    norm: Any = modules.get(str(node.target)) if node.op == "call_module" else None
    return (
        type(norm) is nn.BatchNorm2d and norm.running_mean is not None and norm.affine and not norm.training
    )


def activation_of_node(node: fx.Node, modules: Mapping[str, nn.Module]) -> str | None:
    """Return the name of the activation that a node computes; None for another operation."""
    if node.op == "call_module":
        module = modules[node.target]
        plain = type(module).__module__ == "torch.nn.modules.activation"
        return activation_of(module) if plain else None
    if node.op == "call_method" and str(node.target).rstrip("_") == "relu":
        return "relu"
    if node.op == "call_function" and set(node.kwargs) <= {"inplace"} and len(node.args) == 1:
        known = {torch.relu: "relu", nn.functional.relu: "relu", nn.functional.silu: "silu"}
        known |= {torch.relu_: "relu", nn.functional.gelu: "gelu"}
        return known.get(node.target)
    return None


# ---- batch norms


def folds_of(sites: Sequence[Site]) -> dict[str, str]:
    """Return name of a convolution -> name of the batch norm that can be folded into it."""
    return {site.name: site.norm for site in sites if site.norm is not None}


@contextmanager
def folded_norms(model: nn.Module, folds: Mapping[str, str]) -> Iterator[Callable[[], None]]:
    """Fold batch norms into convolutions, and yield a function that undoes the folding.

    An exception in the `with` block undoes it, too. `folds` maps names of convolutions to names of norms.

    A folded norm only adds a shift; if the convolution has a bias, the shift moves into the bias. A dense
    copy of the model that loads the `state_dict` computes the same result.
    """
    touched = [model.get_submodule(name) for name in (*folds, *folds.values())]
    before = [{key: value.clone() for key, value in each.state_dict().items()} for each in touched]

    def undo() -> None:
        for module, state in zip(touched, before, strict=True):
            module.load_state_dict(state)

    try:
        fold_again(model, folds)
        yield undo
    except BaseException:
        undo()
        raise


@torch.no_grad()  # type: ignore[untyped-decorator]
def fold_again(model: nn.Module, folds: Mapping[str, str]) -> None:
    """Fold batch norms into convolutions, also after a state was loaded; folded norms stay unchanged.

    `folds` maps names of convolutions to names of norms.
    """
    for conv, norm in ((model.get_submodule(a), model.get_submodule(b)) for a, b in folds.items()):
        scale = (norm.running_var.float() + norm.eps).rsqrt() * norm.weight.float()
        shift = norm.bias.float() - norm.running_mean.float() * scale
        bias = shift if conv.bias is None else shift + conv.bias.float() * scale
        new = {} if conv.bias is None else {"bias": bias}
        if not torch.allclose(scale, torch.ones_like(scale), rtol=0.0, atol=_ONE):
            weight = conv.state_dict()["weight"]
            new["weight"] = (weight.float() * scale[:, None, None, None]).to(weight.dtype)
        conv.load_state_dict(new, strict=False)
        if not is_convolution(conv):  # the shift is the bias of a SparseConv2d
            conv.product.fp32_bias.copy_(bias)
        norm.running_var.fill_(1.0 - norm.eps)
        norm.running_mean.zero_()
        norm.weight.fill_(1.0)
        norm.bias.copy_(torch.zeros_like(shift) if conv.bias is not None else shift)


# ---- the rewrite


def ends_of(model: nn.Module, sites: Sequence[Site]) -> dict[str, Ends]:
    """Return name of a convolution -> operations that its kernel computes after the matrix product."""
    found = {}
    for site in sites:
        is_shifted = site.norm is not None and model.get_submodule(site.name).bias is None
        bias = model.get_submodule(site.norm).bias.detach() if is_shifted else None
        found[site.name] = Ends(site.activation, site.other is not None, bias)
    return found


def dense_in_planes(
    model: nn.Module, network: Traced, sparse: Mapping[str, TileMap], border: int
) -> dict[str, TileMap]:
    """Return name -> tiles for dense convolutions that run on the tile kernel of this package.

    They are between operations on planes: to run them with cuDNN, images would have to be copied out of
    planes and back. The tiles keep all weights.
    """
    modules = dict(model.named_modules())
    sites = {site.conv: site for site in network.sites}

    def fits(node: fx.Node) -> bool:
        if node not in sites or not runs_on_grid(modules[sites[node].name]):
            return False
        conv, reads_image = modules[sites[node].name], node.args[0].op == "placeholder"
        return fits_planes(
            conv.out_channels, conv.stride[0], conv.padding[0], border, reads_image=reads_image
        )

    found = join_dense_convolutions(
        list(network.graph.nodes) if network.graph is not None else [],
        {site.conv for site in network.sites if site.name in sparse},
        readers=lambda node: (sites[node].end if node in sites else node).users,
        is_pass=lambda node: pass_of(node, modules) is not None,
        fits=fits,
    )
    dense = [site.name for site in network.sites if site.conv in found and site.name not in sparse]
    shapes = {name: matrix_of(modules[name]).shape for name in dense}
    return {name: dense_tile_map(m, k, min(m, DENSE_HEIGHT)) for name, (m, k) in shapes.items()}


def rewrite(model: nn.Module, convs: Mapping[str, SparseConv2d]) -> None:
    """Put sparse convolutions into a model, and replace its `forward`, in place.

    The model's class is replaced by a subclass with the new `forward`. The model is traced again, since its
    linear layers may have been replaced after the first trace.
    """
    network = trace(model)
    assert network.graph is not None
    for name, module in convs.items():
        model.set_submodule(name, module)
        module.in_network = True
    border = next((module.border for module in convs.values()), 1)
    new = _Rewriter(network, dict(model.named_modules()), border).rewritten()
    own = type(model)
    forward = type(fx.GraphModule(model, new)).forward
    members = {"forward": forward, "__module__": own.__module__, "planes_graph": new}
    model.__class__ = type(own.__name__, (own,), members)
    folds = folds_of(network.sites)
    if folds:
        model.register_load_state_dict_post_hook(lambda loaded, _: fold_again(loaded, folds))


class _Rewriter:
    """Builder of a copy of a graph in which images stay in planes between operations that support planes."""

    def __init__(self, network: Traced, modules: Mapping[str, nn.Module], border: int) -> None:
        self._graph, self._modules, self._border = network.graph, modules, border
        sites = [self._in_kernel(site) for site in network.sites]
        self._of_end = {site.end: site for site in sites}
        self._skipped = {node for site in sites for node in site.before_end()}
        self._new = fx.Graph()
        self._images: dict[fx.Node, fx.Node] = {}
        self._planes: dict[fx.Node, fx.Node] = {}
        self._copied: list[fx.Node] = []
        """New nodes of ReLUs and max pools that a copy into planes computes instead; erased if unused."""

    def _in_kernel(self, site: Site) -> Site:
        """Return the site, reduced to the operations that its kernel will compute.

        These are all operations for a sparse convolution, and only the norm for a dense one.
        """
        if isinstance(self._modules[site.name], SparseConv2d):
            return site
        end = site.conv
        while site.norm is not None and end.target != site.norm:
            end = next(iter(end.users))
        return site._replace(other=None, activation="none", end=end)

    def rewritten(self) -> fx.Graph:
        """Return the new graph, without nodes that nothing reads any more."""
        for node in self._graph.nodes if self._graph is not None else []:
            if node in self._skipped:
                continue
            if (site := self._of_end.get(node)) is not None:
                self._convolve(site)
            elif not self._passed(node):
                self._images[node] = self._new.node_copy(node, self._as_images)
        for node in reversed(self._copied):
            if not node.users:
                self._new.erase_node(node)
        self._new.lint()
        return self._new

    def _convolve(self, site: Site) -> None:
        module = self._modules[site.name]
        if not isinstance(module, SparseConv2d):
            self._images[site.end] = self._dense(site, module)
            return
        x = self._as_planes(site.conv.args[0], max(self._border, module.size // 2))
        added = () if site.other is None else (self._as_planes(site.other, self._border),)
        self._planes[site.end] = self._new.call_module(site.name, (x, *added))

    def _dense(self, site: Site, conv: nn.Conv2d) -> fx.Node:
        """Add a dense convolution to the new graph; without a bias, it gets the shift of its norm as bias."""
        x = self._as_images(site.conv.args[0])
        if site.norm is None or conv.bias is not None:
            return self._new.call_module(site.name, (x,))
        weight, bias = (self._new.get_attr(name) for name in (f"{site.name}.weight", f"{site.norm}.bias"))
        sizes = (conv.stride, conv.padding, conv.dilation, conv.groups)
        return self._new.call_function(nn.functional.conv2d, (x, weight, bias, *sizes))

    def _passed(self, node: fx.Node) -> bool:
        """Add an operation on planes that replaces the node, and return True.

        Return False if the first operand is not in planes, or if there is no such operation.
        """
        if not node.all_input_nodes or node.all_input_nodes[0] not in self._planes:
            return False
        add = pass_of(node, self._modules)
        made = None if add is None else add(NodeOfPass(self._new, self._planes, node, self._as_images))
        if made is None:
            return False
        (self._planes if made.is_planes else self._images)[node] = made.node
        return True

    def _as_images(self, node: fx.Node) -> fx.Node:
        if node not in self._images:
            self._images[node] = self._new.call_function(as_images, (self._planes[node],))
        return self._images[node]

    def _as_planes(self, node: fx.Node, border: int) -> fx.Node:
        """Return the node of the new graph for a value in planes, with the given border.

        If the value must be copied into planes, the copy also computes a preceding ReLU and max pool.
        """
        if border == self._border and node in self._planes:
            return self._planes[node]
        pooled, window = window_of(node, self._modules)
        source = node if window is None else pooled
        before = source.all_input_nodes
        relu = activation_of_node(source, self._modules) == "relu" and _only_user(source) is not None
        relu = relu and len(before[0].users) == 1  # an in-place ReLU would change what others read
        done = [source] * relu + [node] * (window is not None)
        self._copied += [self._images[each] for each in done if each in self._images]
        source = before[0] if relu else source
        arguments = (self._as_images(source), border, relu, *(window or (1, 1, 0)))
        found = self._new.call_function(into_planes, arguments)
        if border == self._border:
            self._planes[node] = found
        return found
