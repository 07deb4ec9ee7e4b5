"""Transformers: encoders in the way of BERT, decoders in the way of GPT-2 and Llama."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from prunecast.codesign.graph.model_graph import ModelGraph
from prunecast.codesign.graph.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """An architecture. Source of every row: the model's published configuration.

    Parameters
    ----------
    layers, hidden, heads : as usual; `key_heads` are shared by several query heads (Llama 3)
    feed_forward : width between the two products of a feed-forward part
    gated : three products (gate, up, down) in the feed-forward part
    fused_qkv : one product for queries, keys and values
    norm_first : a part begins with its norm, so that the sum goes on beside it; else the norm alone goes on
    causal : a token sees only those before it
    head : rows of the last product, over all tokens; 0 for none
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    key_heads: int = 0
    gated: bool = False
    fused_qkv: bool = False
    norm_first: bool = True
    causal: bool = True
    head: int = 0

    @property
    def key_width(self) -> int:
        """Features of all keys together."""
        return self.hidden // self.heads * (self.key_heads or self.heads)


_BERT = partial(Transformer, fused_qkv=True, norm_first=False, causal=False)

TRANSFORMERS = {
    "bert-small": _BERT(layers=4, hidden=512, heads=8, feed_forward=2048),
    "bert-base": _BERT(layers=12, hidden=768, heads=12, feed_forward=3072),
    "bert-large": _BERT(layers=24, hidden=1024, heads=16, feed_forward=4096),
    "gpt2": Transformer(layers=12, hidden=768, heads=12, feed_forward=3072, fused_qkv=True, head=50257),
    "llama-2-7b": Transformer(layers=32, hidden=4096, heads=32, feed_forward=11008, gated=True, head=32000),
    "llama-3-8b": Transformer(
        layers=32, hidden=4096, heads=32, key_heads=8, feed_forward=14336, gated=True, head=128256
    ),
}
"""Shapes of J. Devlin et al. 2019 and I. Turc et al. 2019 (BERT), A. Radford et al. 2019 (GPT-2),
H. Touvron et al. 2023 (Llama 2) and the Llama team 2024 (Llama 3). Inference engines run queries, keys and
values that read the same as one product. In BERT and GPT-2 that saves a sixth of their time; Llama's, each as
large as a GPU wants, take the same within 3 % and stay the matrices that its files hold."""


def build_transformer(name: str, shape: Transformer, *, batch: int, sequence: int) -> ModelGraph:
    """The graph of one forward pass over `batch` sequences of `sequence` tokens."""
    model = ModelGraph(name=name)
    block = _Block(model, shape, batch, sequence)
    elements = shape.hidden * batch * sequence
    stream = model.add(Operation(name="embedding", kind="input", elements_out=elements, layout="tokens"))
    for layer in range(shape.layers):
        stream = block.attention(f"layer.{layer}", stream)
        stream = block.feed_forward(f"layer.{layer}", stream)
    if shape.head:
        block.product("head", shape.head, shape.hidden, [stream])
    return model


class _Block:
    """Adds the parts of a layer; every part ends with the residual sum and its norm."""

    def __init__(self, model: ModelGraph, shape: Transformer, batch: int, sequence: int) -> None:
        self._add: Callable[..., str] = model.add
        self._shape, self._batch, self._sequence = shape, batch, sequence
        self._tokens = batch * sequence

    def product(self, name: str, m: int, k: int, after: list[str]) -> str:
        n = self._tokens
        product = Operation(name=name, kind="gemm", m=m, k=k, n=n, elements_in=k * n, elements_out=m * n)
        return self._add(product, after)

    def attention(self, layer: str, stream: str) -> str:
        shape = self._shape
        hidden, keys = shape.hidden, shape.key_width
        parts = {"query": hidden, "key": keys, "value": keys}
        if shape.fused_qkv:
            parts = {"qkv": hidden + 2 * keys}
        inputs = [self.product(f"{layer}.{part}", m, hidden, [stream]) for part, m in parts.items()]
        mixed = self._add(self._mixing(f"{layer}.attention"), inputs)
        return self._residual(
            f"{layer}.norm1", self.product(f"{layer}.output", hidden, hidden, [mixed]), stream
        )

    def feed_forward(self, layer: str, stream: str) -> str:
        hidden, wide = self._shape.hidden, self._shape.feed_forward
        up = self.product(f"{layer}.up", wide, hidden, [stream])
        if self._shape.gated:
            gate = self.product(f"{layer}.gate", wide, hidden, [stream])
            up = self._elementwise(f"{layer}.gating", wide, [gate, up])
        down = self.product(f"{layer}.down", hidden, wide, [up])
        return self._residual(f"{layer}.norm2", down, stream)

    def _mixing(self, name: str) -> Operation:
        """Scores, softmax and weighted sum in one kernel; a causal mask leaves half of the products."""
        shape, tokens = self._shape, self._tokens
        flops = 4.0 * tokens * self._sequence * shape.hidden * (0.5 if shape.causal else 1.0)
        return Operation(
            name=name,
            kind="attention",
            flops=flops,
            head_width=shape.hidden // shape.heads,
            elements_in=(shape.hidden + 2 * shape.key_width) * tokens,
            elements_out=shape.hidden * tokens,
            layout="tokens",
        )

    def _elementwise(self, name: str, width: int, after: list[str]) -> str:
        out = width * self._tokens
        each = Operation(name=name, kind="elementwise", elements_in=out * len(after), elements_out=out)
        return self._add(each, after)

    def _residual(self, name: str, branch: str, stream: str) -> str:
        """Sum and norm in one pass: two tensors in; the norm out, and the sum where it goes on beside it."""
        each = self._shape.hidden * self._tokens
        tensors = 2 if self._shape.norm_first else 1
        norm = Operation(
            name=name,
            kind="normalise",
            elements_in=2 * each,
            elements_out=tensors * each,
            tensors_out=tensors,
        )
        return self._add(norm, [branch, stream])
