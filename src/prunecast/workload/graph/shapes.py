"""`Transformer`: the sizes of an architecture. `Pass`: one forward pass, written like `prefill:2048`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.files import packaged_toml
from prunecast.kernels.libraries.experts.routing import DEFAULT_ROUTING
from prunecast.workload.graph.families import families

SEQUENCE = 512
"""Default tokens of a sequence."""
MOST = 2**24
FORMS = "prefill:2048, decode:16@4096, batch:8, batch:8x128 or prefill:32x128/padded, several with =WEIGHT"
_GRAMMAR = re.compile(
    r"(?P<kind>prefill|decode|batch):(?:(?P<batch>\d{1,8})x)?(?P<count>\d{1,8})(?:@(?P<cached>\d{1,8}))?"
    r"(?P<padded>/padded)?(?:=(?P<weight>\d{1,9}(?:\.\d{1,9})?))?"
)
MOST_TOKENS = 2**24
"""Largest accepted number of tokens, far above any batch. The limit exists because a plan lists all ranges of
tokens."""


def checked_tokens(tokens: int) -> int:
    """Return a number of tokens; raise BadInput outside of 1 to `MOST_TOKENS`."""
    if tokens < 1:
        raise BadInput(f"tokens must be at least 1, got {tokens}")
    if tokens > MOST_TOKENS:
        raise BadInput(f"tokens must be at most {MOST_TOKENS}, got {tokens}")
    return tokens


class Pass(NamedTuple):
    """One forward pass: `batch` sequences or images, each with `tokens` new tokens after `cached` ones.

    Models of images and latents use only `batch`.
    """

    batch: int
    tokens: int = SEQUENCE
    cached: int = 0
    """Tokens of each sequence whose keys and values are read from the cache."""
    all_logits: bool = True
    """True if the last product multiplies all tokens, False if it multiplies only the last token of each
    sequence (text generation)."""
    share: float = 1.0
    """Share of this pass among all passes of a workload, by number of passes; the shares sum to 1."""
    label: str = ""
    """Text of the pass in the workload, such as `prefill:2048`; may be empty."""
    routing: str = DEFAULT_ROUTING
    """Distribution of tokens over experts: `balanced`, `random` or like `power-law:1.2`, see
    `kernels.libraries.experts.routing`."""
    gpus: int = 1
    """GPUs that share each product (tensor parallelism), see `Transformer.share`."""
    padded: bool = False
    """True if sequences are padded on the right to `tokens`, which are all computed. Attention of encoders
    then reads a mask; causal attention needs none, see `prunecast.torch.prepare_attention`. In a decode pass,
    the cache is padded instead: it has a fixed length, and all of its tokens are read under a mask."""

    @property
    def columns(self) -> int:
        """New tokens of all sequences together: N of a product."""
        return self.batch * self.tokens

    @property
    def is_decode(self) -> bool:
        """True if the pass computes one new token of each sequence after cached tokens."""
        return self.cached > 0 and self.tokens == 1

    def words(self, *, has_images: bool = False) -> str:
        """Return a description of the pass, such as `8 sequences of 512 tokens`."""
        if has_images:
            return "1 image" if self.batch == 1 else f"{self.batch} images"
        sequences = "1 sequence" if self.batch == 1 else f"{self.batch} sequences"
        if self.is_decode:
            return f"next token of {sequences}, {self.cached} cached tokens each{', padded' * self.padded}"
        text = f"{sequences} of {self.tokens} token{'s' if self.tokens > 1 else ''}{', padded' * self.padded}"
        return f"{text} after {self.cached} cached ones" if self.cached else text


def parse_workload(text: str) -> tuple[Pass, ...]:
    """Return the passes of a workload, with shares that sum to 1.

    Parameters
    ----------
    text : parts separated by commas. `prefill:BxT` runs B prompts of T tokens, `prefill:T` one; `decode:B@C`
        computes the next token of B sequences, each with C cached tokens; `batch:B` runs B images, or B
        sequences of 512 tokens, `batch:BxT` B sequences of T tokens, with the logits of every token.
        `/padded` after the numbers: sequences, or in a decode the cache, are padded to this length, so that
        attention of encoders or of a decode reads a mask.
        `=WEIGHT` (default 1) sets how many passes of this kind there are relative to the others

    Raises
    ------
    BadInput : a malformed part, a number out of range, or a part given twice
    """
    found = [_pass(part) for part in text.split(",")]
    total = sum(one.share for one in found)
    if not total > 0.0:
        raise BadInput(f"workload: wanted a weight above 0, got {text!r:.80}")
    if len({one.label for one in found}) < len(found):
        raise BadInput(f"workload: wanted every part once, got {text!r:.80}")
    return tuple(one._replace(share=one.share / total) for one in found if one.share > 0.0)


def _pass(part: str) -> Pass:
    match = _GRAMMAR.fullmatch(part.strip())
    # A decode has cached tokens and no batch before its count
    is_decode = match is not None and match["kind"] == "decode"
    if match is None or (match["cached"] is not None) != is_decode or (is_decode and match["batch"]):
        raise BadInput(f"workload must be like {FORMS}, got {part!r:.80}")
    count, batch, cached = (int(match[name] or 1) for name in ("count", "batch", "cached"))
    if min(count, batch, cached) < 1 or max(count * batch, cached) > MOST:
        raise BadInput(f"workload: numbers must be from 1 and N at most {MOST}, got {part!r:.80}")
    label = part.strip().partition("=")[0]
    share = float(match["weight"] or 1.0)
    padded = match["padded"] is not None
    if match["kind"] == "prefill":
        return Pass(batch, count, all_logits=False, share=share, label=label, padded=padded)
    if is_decode:
        return Pass(count, 1, cached, all_logits=False, share=share, label=label, padded=padded)
    sequences, tokens = (count, SEQUENCE) if match["batch"] is None else (batch, count)
    return Pass(sequences, tokens, share=share, label=label, padded=padded)


class LayerSizes(NamedTuple):
    """Sizes of a layer that may differ from those of other layers, see `Transformer`."""

    heads: int
    key_heads: int
    feed_forward: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The architecture of a transformer.

    Parameters
    ----------
    layers, hidden, heads : number of layers, features of a token, number of query heads
    key_heads : number of key heads, each of which several query heads share (Llama 3); 0 for as many as
        `heads`
    head_width : features of a head if they are not hidden / heads (Qwen 3, Gemma), else 0
    feed_forward : features between the products of a feed-forward part, or of one expert
    gated : the feed-forward part has three products (gate, up, down), else two (up, down)
    rms_norm : norms divide by the root mean square only
    rotary : queries and keys get rotary position embeddings
    experts, experts_per_token : number of feed-forward experts, and of those that a token is routed to; 0 for
        one feed-forward part
    shared_expert : width of a feed-forward part that runs for every token in addition to the experts
        (Llama 4); 0 for none
    dense_layers, dense_feed_forward : number of first layers that have one feed-forward part of this width in
        place of experts (DeepSeek)
    query_rank, key_rank : features of the latent queries, and of the latent keys and values, of multi-head
        latent attention (MLA); 0 for other attention
    rotary_width : features of a head that get the rotary embedding; all heads share these keys (MLA)
    value_width : features of a head's values if they are not `head_width` (MLA), else 0
    fused_qkv, fused_gate : queries, keys and values are one product; gate and up are one product
    qkv_by_head : the rows of that product are the queries, the key and the value of one key head, then those
        of the next (Falcon, GPT-NeoX), else all queries, all keys, all values. torch cannot rotate queries in
        place then, and a head is removed as one range of rows
    norm_first : each part begins with its norm, so that later parts read the residual sum too (pre-norm);
        else later parts read only the norm (post-norm)
    parallel_norms : number of norms of the residual sum that a layer reads if attention and the feed-forward
        part run in parallel (Falcon): 1 if both read one norm, 2 if each reads its own; 0 if the feed-forward
        part reads the sum after attention
    position_bias : attention adds a number for each pair of positions to the scores, as a tensor (T5)
    head_norm : a norm of each head of queries and keys before the rotary embedding (Qwen 3)
    relu : the activation is ReLU, else GELU
    causal : a token attends only to itself and to tokens before it
    window : number of preceding tokens that a token attends to, except in every `global_every`-th layer; 0
        for all
    patch : side in pixels of an image's patch, which is a token; 0 for text
    mels : frequencies of the audio that the encoder reads (Whisper); 0 for none. The model has a decoder too
        if it is causal
    head : rows of the output head, the last product; 0 for none
    vocabulary : rows of the embedding table; 0 for as many as the head has
    embedding_width : features of a row of the embedding table and of the input of the head if they are not
        `hidden`, from and to which two products project (OPT-350M); 0 for as many as `hidden`
    tied_head : the head multiplies with the embedding table, which is stored once
    layer_sizes : sizes of each layer where they differ between layers; empty for equal layers
    source : the publication of these numbers
    not_counted : names of parts that the graph omits or contains in another form; empty for none
    engine_only : names of parts whose launches in torch are not known; empty for none
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    key_heads: int = 0
    head_width: int = 0
    gated: bool = False
    rms_norm: bool = False
    rotary: bool = False
    experts: int = 0
    experts_per_token: int = 0
    shared_expert: int = 0
    dense_layers: int = 0
    dense_feed_forward: int = 0
    query_rank: int = 0
    key_rank: int = 0
    rotary_width: int = 0
    value_width: int = 0
    fused_qkv: bool = False
    fused_gate: bool = False
    qkv_by_head: bool = False
    norm_first: bool = True
    parallel_norms: int = 0
    position_bias: bool = False
    head_norm: bool = False
    relu: bool = False
    causal: bool = True
    window: int = 0
    global_every: int = 0
    patch: int = 0
    mels: int = 0
    head: int = 0
    vocabulary: int = 0
    embedding_width: int = 0
    tied_head: bool = False
    layer_sizes: tuple[LayerSizes, ...] = ()
    source: str = ""
    not_counted: str = ""
    engine_only: str = ""

    @property
    def width(self) -> int:
        """Features of all queries together."""
        return self.heads * self.head_width if self.head_width else self.hidden

    @property
    def key_width(self) -> int:
        """Features of all keys together."""
        return self.width // self.heads * (self.key_heads or self.heads)

    @property
    def embedded(self) -> int:
        """Features of a row of the embedding table, and of the input of the head."""
        return self.embedding_width or self.hidden

    @property
    def embedding_rows(self) -> int:
        """Rows of the embedding table if stored in addition to the head; 0 for images and for a tied head."""
        return 0 if self.patch or self.tied_head else self.vocabulary or self.head

    def share(self, gpus: int) -> "Transformer":
        """Return the sizes of one GPU's share of the model, with tensor parallelism over `gpus` GPUs.

        A GPU has some of the heads, of the features between the products of a feed-forward part (or of each
        expert), and of the rows of the last product and of the embedding table. If there are fewer key heads
        than GPUs, several GPUs store the same key head.

        Raises
        ------
        BadInput : the GPUs do not divide the heads or the features
        """
        if gpus == 1:
            return self
        key_heads = self.key_heads or self.heads
        wrong = {
            f"{self.heads} heads": self.heads % gpus,
            f"{key_heads} key heads": key_heads % gpus and gpus % key_heads,
            f"{self.feed_forward} features of the feed-forward part": self.feed_forward % gpus,
            f"{self.shared_expert} features of the shared expert": self.shared_expert % gpus,
            f"{self.dense_feed_forward} features of the first layers": self.dense_feed_forward % gpus,
        }
        for what, rest in wrong.items():
            if rest:
                raise BadInput(f"tensor-parallel must divide the {what}, got {gpus}")
        return replace(
            self,
            heads=self.heads // gpus,
            key_heads=max(key_heads // gpus, 1),
            head_width=self.width // self.heads,
            feed_forward=self.feed_forward // gpus,
            shared_expert=self.shared_expert // gpus,
            dense_feed_forward=self.dense_feed_forward // gpus,
            head=-(-self.head // gpus),
            vocabulary=-(-self.vocabulary // gpus),
            layer_sizes=tuple(
                self.layer_shape(layer).share(gpus).own_sizes for layer in range(len(self.layer_sizes))
            ),
        )

    def layer_shape(self, layer: int) -> "Transformer":
        """Return the sizes of one layer; the first `dense_layers` have no experts."""
        if self.layer_sizes:
            own = replace(self, layer_sizes=(), head_width=self.width // self.heads).layer_shape(layer)
            return replace(own, **self.layer_sizes[layer]._asdict())
        if layer >= self.dense_layers:
            return self
        return replace(self, experts=0, shared_expert=0, feed_forward=self.dense_feed_forward)

    @property
    def own_sizes(self) -> LayerSizes:
        """The sizes that may differ between layers."""
        return LayerSizes(self.heads, self.key_heads or self.heads, self.feed_forward)

    def window_of(self, layer: int) -> int:
        """Return the number of preceding tokens that a token attends to in a layer; 0 for all."""
        return 0 if self.global_every and (layer + 1) % self.global_every == 0 else self.window


@cache
def transformers() -> dict[str, Transformer]:
    """Return the standard transformers by name."""
    rows = packaged_toml(__package__, "transformers.toml")
    return {name: _transformer(name, **row) for name, row in rows.items()}


def _transformer(
    name: str, family: str = "", config: Mapping[str, Any] | None = None, **sizes: Any
) -> Transformer:
    """Return a standard transformer from its row: the facts of its family, or what that reads in `config`."""
    facts: Mapping[str, Any] = families()[family].facts if family else {}
    if config is not None:
        facts = families()[family].sizes(config, name)
    return Transformer(**{**facts, **sizes})


def check_phase(name: str, shape: Transformer, cached: int) -> None:
    """Raise BadInput for a pass with cached tokens of a model that does not generate text."""
    if cached and not shape.causal:
        raise BadInput(f"{name} generates no tokens one by one: wanted prefill:T or batch:B, got a decode")
