"""`Transformer`: the sizes of an architecture; `Pass`: what it is run on, as `prefill:2048` says it."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.workload.graph.families import families

SEQUENCE = 512
"""Tokens of a sequence where nothing says how many."""
MOST = 2**24
FORMS = "prefill:2048, prefill:4x2048, decode:16@4096 or batch:8, several with =WEIGHT"
_GRAMMAR = re.compile(
    r"(?P<kind>prefill|decode|batch):(?:(?P<batch>\d{1,8})x)?(?P<count>\d{1,8})(?:@(?P<cached>\d{1,8}))?"
    r"(?:=(?P<weight>\d{1,9}(?:\.\d{1,9})?))?"
)


class Pass(NamedTuple):
    """One forward pass: `batch` sequences or images, of each `tokens` new tokens after `cached` ones.

    Models of images and latents know `batch` alone.
    """

    batch: int
    tokens: int = SEQUENCE
    cached: int = 0
    """Tokens of each sequence whose keys and values are read from the cache."""
    all_logits: bool = True
    """The last product is of all tokens, else of the last one of each sequence, as when text is generated."""
    share: float = 1.0
    """Part of the passes in a mix that are this one."""
    label: str = ""

    @property
    def columns(self) -> int:
        """Tokens of all sequences: N of a product."""
        return self.batch * self.tokens


def parse_workload(text: str) -> tuple[Pass, ...]:
    """The passes of a workload; shares sum to 1.

    Parameters
    ----------
    text : parts with a comma between. `prefill:BxT` runs B prompts of T tokens, `prefill:T` one; `decode:B@C`
        the next token of B sequences after C; `batch:B` B images, or B sequences of 512 tokens. `=WEIGHT`
        says how many passes of each kind there are to those of the others, 1 without

    Raises
    ------
    BadInput : a part of another form, a number out of range, or a part given twice
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
    if match is None or not _takes(match):
        raise BadInput(f"workload must be like {FORMS}, got {part!r:.80}")
    count, batch, cached = (int(match[name] or 1) for name in ("count", "batch", "cached"))
    if min(count, batch, cached) < 1 or max(count * batch, cached) > MOST:
        raise BadInput(f"workload: numbers must be from 1 and N at most {MOST}, got {part!r:.80}")
    label = part.strip().partition("=")[0]
    share = float(match["weight"] or 1.0)
    if match["kind"] == "prefill":
        return Pass(batch, count, all_logits=False, share=share, label=label)
    if match["kind"] == "decode":
        return Pass(count, 1, cached, all_logits=False, share=share, label=label)
    return Pass(count, share=share, label=label)


def _takes(match: re.Match[str]) -> bool:
    """Whether a kind has the numbers that it needs, and no other."""
    is_prefill, is_decode = match["kind"] == "prefill", match["kind"] == "decode"
    return (match["batch"] is None or is_prefill) and (match["cached"] is not None) == is_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """An architecture.

    Parameters
    ----------
    layers, hidden, heads : as usual; `key_heads` are shared by several query heads (Llama 3), 0 for `heads`
    head_width : features of a head where that is not hidden / heads (Qwen 3, Gemma), else 0
    feed_forward : width between the two products of a feed-forward part, or of one expert
    gated : three products (gate, up, down) in the feed-forward part
    rms_norm : norms divide by the root mean square only
    rotary : positions are turned into queries and keys
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
    rms_norm: bool = False
    rotary: bool = False
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
    rows = tomllib.loads(text)
    facts = {name: families()[row.pop("family")].facts for name, row in rows.items() if "family" in row}
    return {name: Transformer(**{**facts.get(name, {}), **row}) for name, row in rows.items()}


def check_phase(name: str, shape: Transformer, cached: int) -> None:
    """Refuse a cache to what generates no text."""
    if cached and not shape.causal:
        raise BadInput(f"{name} generates no tokens one by one: wanted prefill:T or batch:B, got a decode")
