"""`Blocks`: builder that adds parts of transformer layers (attention, feed-forward, experts) to a graph."""

from collections.abc import Sequence
from typing import Any

from prunecast.kernels.libraries.attention.shape import Attention
from prunecast.kernels.libraries.experts.call import ExpertLayer
from prunecast.workload.graph.experts import ExpertPart, active_experts
from prunecast.workload.graph.model_graph import ModelGraph, Operation, linear
from prunecast.workload.graph.shapes import Pass, Transformer


class Blocks:
    """Builder that adds the parts of transformer layers to a graph.

    A part begins with products and ends with one, or with a sum of experts. `layer` adds the residual sums
    and norms between parts. In each method of a part, `layer` is the prefix of the names of new operations,
    and `stream` is the name of the operation that writes the input of the part. Methods that return a name
    return the name of the last operation that they added.

    Parameters
    ----------
    model : the graph to which parts are added
    shape : sizes of the layers
    run : sequences and their new and cached tokens
    copies : number of equal layers that each part represents
    """

    def __init__(self, model: ModelGraph, shape: Transformer, run: Pass, copies: int = 1) -> None:
        self._model, self._shape, self._run, self._copies = model, shape, run, copies

    def product(self, name: str, m: int, k: int, after: list[str], *, n: int = 0) -> str:
        """Add the product of A (m, k) with `n` columns; 0 stands for all new tokens of the pass."""
        return self._model.add(linear(name, m, k, n or self._run.columns, copies=self._copies), after)

    def projected(self, name: str, stream: str, m: int, k: int) -> str:
        """Add the product from `k` features to `m` and return its name; return `stream` if they are equal.

        Models without such products have embeddings with the features of their layers.
        """
        return stream if m == k else self.product(name, m, k, [stream])

    def layer(self, name: str, stream: str, window: int = 0) -> str:
        """Add attention, the feed-forward part, and the residual sums and norms after them.

        In a parallel layer both parts read `stream`, and one kernel adds both to the residual. In other
        layers, the feed-forward part reads the norm of the first residual sum.
        """
        attention = self.attention(name, stream, window)
        if self._shape.parallel_norms:
            return self.residual(f"{name}.norm2", [attention, self.feed_forward(name, stream)], stream)
        stream = self.residual(f"{name}.norm1", [attention], stream)
        return self.residual(f"{name}.norm2", [self.feed_forward(name, stream)], stream)

    def attention(self, layer: str, stream: str, window: int = 0) -> str:
        """Add the products for queries, keys and values, attention, and the output product.

        A token attends to at most `window` tokens; 0 means no limit.
        """
        shape, run = self._shape, self._run
        if shape.key_rank:
            return self._latent_attention(layer, stream)
        parts = {"query": shape.width, "key": shape.key_width, "value": shape.key_width}
        if shape.fused_qkv:
            parts = {"qkv": shape.width + 2 * shape.key_width}
        read = [self.product(f"{layer}.{part}", m, shape.hidden, [stream]) for part, m in parts.items()]
        if shape.rotary:
            read = self._rotary(layer, read)
        read = self._cache(layer, 2 * shape.key_width, read)
        cached = min(run.cached, window or run.cached)
        seen = self._attention(run.cached + run.tokens, window)
        mixed = self._mixing(f"{layer}.attention", read, seen, 2 * shape.key_width * run.columns, cached)
        return self.product(f"{layer}.output", shape.hidden, shape.width, [mixed])

    def _latent_attention(self, layer: str, stream: str) -> str:
        """Add multi-head latent attention (MLA), as in DeepSeek-V3.

        The cache holds the latent keys and values, and one rotary key for all heads. In a pass with cached
        tokens, heads attend to the latents themselves, and the product `key_b` is absorbed into queries and
        outputs. The number of multiplications with the weights of `key_b` is then the same. The time of
        attention is the longer of memory and arithmetic time, since no kernel for it has been fitted.
        """
        shape, run = self._shape, self._run
        values = shape.heads * shape.value_width
        content = shape.width - shape.heads * shape.rotary_width
        latent = shape.key_rank + shape.rotary_width
        rank = shape.query_rank
        down = self.product(f"{layer}.query_a", rank, shape.hidden, [stream])
        norm = self._elementwise(f"{layer}.query_norm", rank, rank, [down], kind="rms norm")
        query = self.product(f"{layer}.query_b", shape.width, rank, [norm])
        rank = shape.key_rank
        keys = self.product(f"{layer}.key_a", latent, shape.hidden, [stream])
        norm = self._elementwise(f"{layer}.key_norm", rank, rank, [keys], kind="rms norm")
        both = self.product(f"{layer}.key_b", content + values, rank, [norm])
        width = shape.heads * shape.rotary_width + shape.rotary_width
        rotated = self._elementwise(f"{layer}.rotary", width, width, [query, keys], kind="rotary")
        written = self._cache(layer, latent, [rotated])
        seen = run.cached + run.tokens
        scored, summed = (latent, shape.key_rank) if run.cached else (shape.head_width, shape.value_width)
        pairs = run.columns * (run.cached + (run.tokens + 1) / 2)
        read = shape.width + (latent if run.cached else content + values + shape.rotary_width)
        mixed = self._add(
            f"{layer}.attention",
            "attention",
            [*written, both],
            flops=2.0 * shape.heads * (scored + summed) * pairs,
            elements_in=read * run.columns,
            elements_cached=latent * run.batch * run.cached,
            elements_kept=latent * run.batch * seen,
            elements_out=values * run.columns,
            layout="tokens",
        )
        return self.product(f"{layer}.output", shape.hidden, values, [mixed])

    def cross_attention(self, layer: str, stream: str, keys: list[str], tokens: int) -> str:
        """Add attention to `tokens` tokens of another model, such as an encoder.

        `keys` are the names of the products for keys and values of these tokens. If `keys` is empty, both are
        read from the cache.
        """
        shape, run = self._shape, self._run
        query = self.product(f"{layer}.query", shape.width, shape.hidden, [stream])
        of_others = 2 * shape.key_width * run.batch * tokens
        mixed = self._mixing(
            f"{layer}.attention",
            [query, *keys],
            self._attention(tokens)._replace(is_causal=False),
            of_others if keys else 0,
            0 if keys else tokens,
        )
        return self.product(f"{layer}.output", shape.hidden, shape.width, [mixed])

    def feed_forward(self, layer: str, stream: str) -> str:
        """Add the feed-forward part of `layer`, or experts that divide the tokens among them.

        The part reads the output of operation `stream`.
        """
        if self._shape.experts:
            return self._experts(layer, stream)
        hidden, wide = self._shape.hidden, self._shape.feed_forward
        up = self._wide(layer, [stream], wide)
        return self.product(f"{layer}.down", hidden, wide, [up])

    def _wide(self, layer: str, after: list[str], wide: int) -> str:
        hidden = self._shape.hidden
        if self._shape.fused_gate:
            both = self.product(f"{layer}.gate_up", 2 * wide, hidden, after)
            return self._elementwise(f"{layer}.gating", 2 * wide, wide, [both], kind="gated unit")
        up = self.product(f"{layer}.up", wide, hidden, after)
        if not self._shape.gated:
            kind = "relu" if self._shape.relu else "activation"
            return self._elementwise(f"{layer}.activation", wide, wide, [up], kind=kind)
        gate = self.product(f"{layer}.gate", wide, hidden, after)
        return self._elementwise(f"{layer}.gating", 2 * wide, wide, [gate, up], kind="gated unit")

    def _experts(self, layer: str, stream: str) -> str:
        """Add experts. Tokens are scattered to the columns of their experts and gathered again.

        The scatter and the gather each read and write all tokens once. Experts without a token do not run.
        Dense experts run as one fused call, whose time `ExpertPart` divides among the operations.
        """
        shape, run = self._shape, self._run
        sizes = ExpertLayer(
            experts=shape.experts,
            per_token=shape.experts_per_token,
            hidden=shape.hidden,
            width=shape.feed_forward,
            tokens=run.columns,
            routing=run.routing,
        )

        def part(name: str, share: float = 1.0, *, is_product: bool = False) -> ExpertPart:
            return ExpertPart(layer, name, share, sizes, is_product)

        def expert(name: str, m: int, k: int, after: str, of: ExpertPart) -> str:
            active = active_experts(sizes)
            counts = {"copies": self._copies * shape.experts, "idle": self._copies * (shape.experts - active)}
            n = -(-run.columns * shape.experts_per_token // active)
            return self._model.add(linear(f"{layer}.experts.{name}", m, k, n, **counts, experts=of), [after])

        sent = run.columns * shape.experts_per_token
        hidden, wide = shape.hidden, shape.feed_forward
        router = self.product(f"{layer}.router", shape.experts, hidden, [stream])
        apart = self._elementwise(
            f"{layer}.to_experts",
            hidden,
            hidden * shape.experts_per_token,
            [stream, router],
            experts=part("sort"),
        )
        half = part("gate_up", 0.5, is_product=True)
        read = [expert(name, wide, hidden, apart, half) for name in ("gate", "up")]
        mixed = self._elementwise(
            f"{layer}.gating",
            2 * wide,
            wide,
            read,
            columns=sent,
            kind="gated unit",
            experts=part("activation"),
        )
        down = expert("down", hidden, wide, mixed, part("down", is_product=True))
        together = self._elementwise(
            f"{layer}.from_experts",
            hidden * shape.experts_per_token,
            hidden,
            [down],
            experts=part("sum"),
        )
        if shape.shared_expert:
            wide = shape.shared_expert
            up = self._wide(f"{layer}.shared", [stream], wide)
            shared = self.product(f"{layer}.shared.down", hidden, wide, [up])
            together = self._elementwise(f"{layer}.shared.sum", 2 * hidden, hidden, [together, shared])
        return together

    def _rotary(self, layer: str, after: list[str]) -> list[str]:
        """Add the rotary embedding of queries and keys, after norms of their heads if the model has them.

        `prunecast.torch.rotary` rotates heads in place only if all queries, then all keys, begin the result
        of a product.
        """
        shape = self._shape
        width = shape.width + shape.key_width
        if shape.head_norm:
            after = [self._elementwise(f"{layer}.head_norm", width, width, after, kind="head norm")]
        in_order = not shape.qkv_by_head
        return [self._elementwise(f"{layer}.rotary", width, width, after, kind="rotary", fuses=in_order)]

    def _cache(self, layer: str, width: int, after: list[str]) -> list[str]:
        """Add the write of `width` features of each new token to the cache, in a pass with cached tokens.

        Return the names of the operations whose outputs attention reads.
        """
        if not self._run.cached:
            return after
        return [self._elementwise(f"{layer}.cache", width, width, after, kind="cache")]

    def _attention(self, keys: int, window: int = 0) -> Attention:
        shape, run = self._shape, self._run
        head_width = shape.width // shape.heads
        key_heads = max(shape.key_width // head_width, 1)
        return Attention(
            sequences=run.batch,
            queries=run.tokens,
            keys=keys,
            heads=shape.heads,
            key_heads=key_heads,
            head_width=head_width,
            is_causal=shape.causal,
            window=window,
            has_mask=(run.padded and (run.is_decode or not shape.causal)) or shape.position_bias,
            masks_keys=run.padded and not shape.position_bias and not shape.causal,
        )

    def _mixing(
        self, name: str, after: list[str], attention: Attention, elements_of_keys: int, cached: int
    ) -> str:
        """Add fused attention: scores, softmax and weighted sum in one kernel."""
        shape, run = self._shape, self._run
        return self._add(
            name,
            "attention",
            after,
            flops=attention.flops,
            attention=attention,
            elements_in=shape.width * run.columns + elements_of_keys,
            elements_cached=2 * shape.key_width * run.batch * cached,
            elements_out=shape.width * run.columns,
            layout="tokens",
        )

    def position_bias(self, stream: str) -> None:
        """Add the biases of attention scores for all pairs of positions, which every layer reads."""
        written, tokens = self._shape.heads * self._run.tokens, self._run.tokens
        self._elementwise("position_bias", 0, written, [stream], columns=tokens, kind="position bias")

    def first_norm(self, stream: str) -> str:
        """Add the norms of the first layer's input, for pre-norm architectures."""
        hidden, norms = self._shape.hidden, self._shape.parallel_norms or 1
        kind = "rms norm" if self._shape.rms_norm else "normalise"
        return self._elementwise(
            "norm0", hidden, norms * hidden, [stream], kind=kind, features=hidden, tensors_out=norms
        )

    def _elementwise(
        self,
        name: str,
        read: int,
        written: int,
        after: list[str],
        *,
        columns: int = 0,
        kind: str = "elementwise",
        **others: Any,
    ) -> str:
        n = columns or self._run.columns
        return self._add(name, kind, after, elements_in=read * n, elements_out=written * n, **others)

    def residual(self, name: str, branches: Sequence[str], stream: str) -> str:
        """Add the sum of `branches` and the residual, and the norm after it, as one kernel.

        The kernel writes the norm, or two norms if parallel parts read different ones. In pre-norm
        architectures it also writes the sum. Of several GPUs that share the model, each adds up its branches
        before the all-reduce, which then combines one tensor.
        """
        hidden, each = self._shape.hidden, self._shape.hidden * self._run.columns
        if self._run.gpus > 1 and len(branches) > 1:
            branches = [self._elementwise(f"{name}.sum", len(branches) * hidden, hidden, [*branches])]
        added = [*(self.summed_over_gpus(branch, each) for branch in branches), stream]
        tensors = (self._shape.parallel_norms or 1) + self._shape.norm_first
        return self._add(
            name,
            "rms norm" if self._shape.rms_norm else "normalise",
            added,
            elements_in=len(added) * each,
            elements_out=tensors * each,
            tensors_out=tensors,
            features=hidden,
        )

    def summed_over_gpus(self, name: str, elements: int) -> str:
        """Add an all-reduce of a tensor over the GPUs that share the model, and return its name.

        On one GPU, return `name`.
        """
        gpus = self._run.gpus
        if gpus == 1:
            return name
        sizes = {"elements_in": elements, "elements_out": elements, "gpus": gpus}
        return self._add(f"{name}.all_reduce", "all reduce", [name], **sizes)

    def gathered_over_gpus(self, name: str, elements: int) -> None:
        """Add an all-gather of `elements` elements of each GPU that shares the model; nothing on one GPU."""
        gpus = self._run.gpus
        if gpus > 1:
            sizes = {"elements_in": elements, "elements_out": gpus * elements, "gpus": gpus}
            self._add(f"{name}.all_gather", "all gather", [name], **sizes)

    def _add(self, name: str, kind: str, after: list[str], **sizes: Any) -> str:
        return self._model.add(Operation(name=name, kind=kind, copies=self._copies, **sizes), after)
