"""`Pass`: what a model is run on, and its text: `prefill:2048`, `decode:16@4096`, mixes of them."""

import re
from typing import NamedTuple

from prunecast.errors import BadInput

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
