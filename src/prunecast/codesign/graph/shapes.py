"""`Transformer`: the sizes of an architecture; those with names lie in `transformers.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from prunecast.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """An architecture.

    Parameters
    ----------
    layers, hidden, heads : as usual; `key_heads` are shared by several query heads (Llama 3), 0 for `heads`
    head_width : features of a head where that is not hidden / heads (Qwen 3, Gemma), else 0
    feed_forward : width between the two products of a feed-forward part, or of one expert
    gated : three products (gate, up, down) in the feed-forward part
    experts, experts_per_token : feed-forward parts, of which a token goes through some; 0 for one for all
    fused_qkv, fused_gate : one product for queries, keys and values; for gate and up
    norm_first : a part begins with its norm, so that the sum goes on beside it; else the norm alone goes on
    causal : a token sees only those before it
    window : tokens that it sees of those, but in every layer of `global_every`; 0 for all
    patch : pixels of the side of an image's patch, which is a token; 0 for text
    mels : frequencies of the sound that an encoder in front reads (Whisper); 0 for none
    head : rows of the last product; 0 for none
    source : what published these numbers
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    key_heads: int = 0
    head_width: int = 0
    gated: bool = False
    experts: int = 0
    experts_per_token: int = 0
    fused_qkv: bool = False
    fused_gate: bool = False
    norm_first: bool = True
    causal: bool = True
    window: int = 0
    global_every: int = 0
    patch: int = 0
    mels: int = 0
    head: int = 0
    source: str = ""

    @property
    def width(self) -> int:
        """Features of all queries together."""
        return self.heads * self.head_width if self.head_width else self.hidden

    @property
    def key_width(self) -> int:
        """Features of all keys together."""
        return self.width // self.heads * (self.key_heads or self.heads)

    @property
    def weights(self) -> int:
        """Elements of all matrices of the layers, those of an encoder in front left out."""
        attention = self.hidden * (2 * self.width + 2 * self.key_width)
        parts = (3 if self.gated else 2) * (self.experts or 1)
        return self.layers * (attention + parts * self.hidden * self.feed_forward)

    def window_of(self, layer: int) -> int:
        """Tokens that a layer sees, 0 for all."""
        return 0 if self.global_every and (layer + 1) % self.global_every == 0 else self.window


@cache
def transformers() -> dict[str, Transformer]:
    """The architectures by name."""
    text = resources.files(__package__).joinpath("transformers.toml").read_text(encoding="utf-8")
    return {name: Transformer(**row) for name, row in tomllib.loads(text).items()}


def check_phase(name: str, shape: Transformer, cached: int) -> None:
    """Refuse a cache to what generates no text."""
    if cached and not shape.causal:
        raise BadInput(f"{name} generates no tokens one by one: wanted prefill:T or batch:B, got a decode")
