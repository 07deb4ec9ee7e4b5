"""A transformer as `torch.compile` and `prunecast.torch.sparsify` run it: which launches, after what.

Queries, keys and values are one product, gate and up another. Between products lie attention and the kernels
that Inductor writes: a norm with the residual sums before it, rotary embedding, the cache's new keys and
values, and an activation where it is no epilogue. What each takes: `torch_time.py`.

Matrices of a file that read the same x are one product too: `sparsify` makes one launch of those that are
pruned to tiles, another of those with 2:4, `fuse_dense` one of those that stay dense. Each launch has its own
beginning, fill of the GPU and end, and turns x for itself, so that members pruned alike take the least.
"""

from collections.abc import Collection, Mapping, Sequence

from prunecast.errors import BadInput
from prunecast.plan.conv_shape import ConvShape
from prunecast.workload.graph.blocks import mean_keys
from prunecast.workload.graph.model_graph import Member, ModelGraph, Operation, convolved, linear
from prunecast.workload.graph.shapes import Pass, Transformer, check_phase

PIXELS = 224
TILE_KEYS = 128
"""Queries and keys of a tile of cuDNN's attention, which multiplies whole ones. Kind: fitted, with the costs
of attention."""
SUMMED_TENSORS = 4.75
"""Tensors that a norm moves where sums go on beside it: Inductor adds up the branches since the last sum that
it wrote, 2 to 5 tensors in turn, and writes that sum once in four norms. Kind: read in the kernels that it
made for Llama and ViT (torch 2.11)."""

SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("gate_proj", "up_proj"),
)
"""Names, side by side in one module, in the order in which models call them."""
WEIGHT = ".weight"
ROWS = 64
"""Every member has whole tiles of so many rows, the lowest of a menu, or is a product of its own."""


def torch_form(name: str, shape: Transformer, run: Pass, *, apart: bool = False) -> ModelGraph:
    """The graph of one forward pass.

    Parameters
    ----------
    apart : products by matrix, as files hold them, though torch launches those together that read the same

    Raises
    ------
    BadInput : a model whose form is not known, or a decode where no text is generated
    """
    check_phase(name, shape, run.cached)
    if shape.experts or shape.mels or shape.window:
        what = "experts" if shape.experts else "sound" if shape.mels else "windows of attention"
        raise BadInput(f"{name} has {what}, of which the form in torch is not known: --runtime engine")
    return _Form(name, shape, run._replace(tokens=tokens_of(shape, run)), apart=apart).model


def tokens_of(shape: Transformer, run: Pass) -> int:
    """New tokens of each sequence, or of each image."""
    return (PIXELS // shape.patch) ** 2 + 1 if shape.patch else run.tokens


def _whole(tokens: int) -> int:
    """Tokens of whole tiles."""
    return -(-tokens // TILE_KEYS) * TILE_KEYS


class _Form:
    """Adds launch after launch."""

    def __init__(self, name: str, shape: Transformer, run: Pass, *, apart: bool) -> None:
        self.model = ModelGraph(name=name, runtime="torch")
        self._shape, self._run, self._columns, self._apart = shape, run, run.columns, apart
        stream = self._patches() if shape.patch else self._input()
        if shape.norm_first:
            stream = self._norm("norm0", stream, first=True)
        for layer in range(shape.layers):
            stream = self._layer(f"layer.{layer}", stream)
        if shape.head:
            n = 0 if run.all_logits and not shape.patch else run.batch
            self._product("head", shape.head, shape.hidden, stream, n=n)

    def _input(self) -> str:
        elements = self._shape.hidden * self._columns
        return self.model.add(Operation(name="embedding", kind="input", elements_out=elements))

    def _patches(self) -> str:
        shape = self._shape
        conv = ConvShape.square(3, PIXELS, shape.patch, stride=shape.patch, padding=0, batch=self._run.batch)
        of = convolved("patches", shape.hidden, conv)
        image = Operation(name="image", kind="input", elements_out=of.elements_in)
        product = Operation(
            name=of.name,
            kind="patches",
            flops=2.0 * of.multiplications,
            elements_in=of.elements_in,
            elements_out=of.elements_out,
        )
        return self.model.add(product, [self.model.add(image)])

    def _layer(self, layer: str, stream: str) -> str:
        shape = self._shape
        qkv = {"query": shape.width, "key": shape.key_width, "value": shape.key_width}
        read = self._products(layer, "qkv", qkv, stream, apart=not shape.fused_qkv)
        mixed = self._attention(layer, [self._rotary(layer, read)] if shape.gated else read)
        output = self._product(f"{layer}.output", shape.hidden, shape.width, mixed)
        return self._feed_forward(layer, self._norm(f"{layer}.norm1", output))

    def _feed_forward(self, layer: str, stream: str) -> str:
        shape, wide = self._shape, self._shape.feed_forward
        if shape.gated:
            parts = {"gate": wide, "up": wide}
            up = self._products(layer, "gate_up", parts, stream, apart=not shape.fused_gate)
            active = self._add(f"{layer}.activation", "gated unit", up, 2 * wide, wide)
        else:
            up = [self._product(f"{layer}.up", wide, shape.hidden, stream)]
            active = self._add(f"{layer}.activation", "activation", up, wide)
        return self._norm(f"{layer}.norm2", self._product(f"{layer}.down", shape.hidden, wide, active))

    def _product(self, name: str, m: int, k: int, after: str, *, n: int = 0) -> str:
        return self.model.add(linear(name, m, k, n or self._columns), [after])

    def _products(
        self, layer: str, together: str, parts: dict[str, int], after: str, *, apart: bool
    ) -> list[str]:
        """Rows that read the same as one product, or as one for each matrix of the file."""
        if not (self._apart and apart):
            parts = {together: sum(parts.values())}
        return [self._product(f"{layer}.{name}", m, self._shape.hidden, after) for name, m in parts.items()]

    def _rotary(self, layer: str, after: list[str]) -> str:
        """Queries and keys are turned, and keys and values go into the cache, where there is one."""
        shape = self._shape
        turned = self._add(f"{layer}.rotary", "rotary", after, shape.width + shape.key_width)
        if not self._run.cached:
            return turned
        return self._add(f"{layer}.cache", "cache", [turned], 2 * shape.key_width)

    def _attention(self, layer: str, after: list[str]) -> str:
        shape, run = self._shape, self._run
        queries, keys = run.tokens if run.cached else _whole(run.tokens), float(_whole(run.tokens))
        if shape.causal:
            keys = mean_keys(run, 0) + 0.5 * min(TILE_KEYS, run.tokens)
        mixed = Operation(
            name=f"{layer}.attention",
            kind="attention",
            flops=4.0 * run.batch * queries * keys * shape.width,
            head_width=shape.width // shape.heads,
            elements_in=(shape.width + 2 * shape.key_width) * self._columns,
            elements_cached=2 * shape.key_width * run.batch * run.cached,
            elements_out=shape.width * self._columns,
        )
        return self.model.add(mixed, after)

    def _norm(self, name: str, after: str, *, first: bool = False) -> str:
        """Residual sum and norm in one kernel."""
        each = self._shape.hidden * self._columns
        tensors = 2.0 if first else SUMMED_TENSORS if self._shape.norm_first else 3.0
        norm = Operation(
            name=name,
            kind="rms norm" if self._shape.gated else "normalise",
            elements_in=round((tensors - 1.0) * each),
            elements_out=each,
        )
        return self.model.add(norm, [after])

    def _add(self, name: str, kind: str, after: list[str], read: int, written: int = 0) -> str:
        """An element-wise kernel over so many features in, and as many out where nothing else is said."""
        columns = self._columns
        each = Operation(
            name=name, kind=kind, elements_in=read * columns, elements_out=(written or read) * columns
        )
        return self.model.add(each, after)


def sibling_groups(columns: Mapping[str, int]) -> list[list[str]]:
    """Names of matrices or modules -> K, again: those together that read the same x."""
    groups, taken = [], set()
    for name in columns:
        if name not in taken:
            groups.append(_group(name, columns))
            taken |= set(groups[-1])
    return groups


def _group(name: str, columns: Mapping[str, int]) -> list[str]:
    end = WEIGHT if name.endswith(WEIGHT) else ""
    parent, dot, own = name.removesuffix(WEIGHT).rpartition(".")
    for names in SIBLINGS:
        group = [f"{parent}{dot}{each}{end}" for each in names]
        if own in names and len({columns.get(each) for each in group}) == 1:
            return group
    return [name]


def joint_name(group: Sequence[str]) -> str:
    """One name of all: `a.q_proj.weight` and `a.k_proj.weight` are `a.q_proj+k_proj.weight`."""
    end = WEIGHT if group[0].endswith(WEIGHT) else ""
    parent, dot, _ = group[0].removesuffix(WEIGHT).rpartition(".")
    return parent + dot + "+".join(name.removesuffix(WEIGHT).rpartition(".")[2] for name in group) + end


def launched_together(model: ModelGraph, names: Collection[str]) -> list[list[str]]:
    """The groups of more than one of these products that torch launches as one."""
    if model.runtime != "torch":
        return []
    products = model.products
    every = sibling_groups({name: product.k for name, product in products.items()})
    found = [[name for name in group if name in names] for group in every]
    return [group for group in found if len(group) > 1 and not any(products[name].m % ROWS for name in group)]


def together(model: ModelGraph, groups: Sequence[Sequence[str]]) -> ModelGraph:
    """The graph with one product for each group."""
    joint = {name: _joint(model, group) for group in groups for name in group}
    found = ModelGraph(name=model.name, runtime=model.runtime)
    for operation in model:
        own = joint.get(operation.name, operation)
        if own.name not in found.graph:
            sources = model.graph.predecessors(operation.name)
            found.add(
                own, list(dict.fromkeys(joint[each].name if each in joint else each for each in sources))
            )
    return found


def _joint(model: ModelGraph, group: Sequence[str]) -> Operation:
    members = tuple(Member(name, model[name].m) for name in group)
    first = model[group[0]]
    return linear(joint_name(group), sum(each.m for each in members), first.k, first.n, members=members)
