"""`Removal`: a share of the layers, heads, feed-forward widths or experts to remove from a transformer.

Removal changes only sizes: a transformer without some of its parts is a smaller transformer, whose graph is
built and timed like that of any other. All layers keep the same number of parts, since a configuration of
Llama, and every engine that reads one, has one size for all layers. With `/uneven` the mean number is the
same, but layers with more important parts keep more of them.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.workload.graph.shapes import Transformer

PARTS = ("layers", "heads", "widths", "experts")
"""Parts that can be removed: whole layers; heads, in groups that share a key head; features between the
products of a feed-forward part; experts."""
UNEVEN = ("heads", "widths")
"""Parts that may be removed unevenly: layers then keep different numbers of them."""
WIDTH_STEPS = (64, 8)
"""Steps of the number of kept widths: a multiple of the first step that divides the width and fits in it at
least `FEWEST_STEPS` times. Kind: choice; 64 is a k-step of most kernels, and 8 elements of fp16 have the
16 bytes that copies need."""
FEWEST_STEPS = 16
"""Least number of `WIDTH_STEPS` in a width, so that a search can choose its share finely. Kind: choice."""


class Removal(NamedTuple):
    """Share of one kind of part to remove: of the parts in every layer, or of the layers."""

    part: str
    share: float
    is_uneven: bool = False
    """True if layers keep different numbers of parts, with the same mean."""

    @property
    def text(self) -> str:
        """The text that `parse_removal` accepts, such as `heads:0.25`."""
        return f"{self.part}:{self.share:g}{'/uneven' * self.is_uneven}"


def parse_removal(text: str) -> Removal:
    """Parse a text such as `experts:0.25` or `widths:0.25/uneven`.

    Raises
    ------
    BadInput : an unknown part, a share that is not between 0 and 1, or `/uneven` for a part outside `UNEVEN`
    """
    match = re.fullmatch(rf"({'|'.join(PARTS)}):(0?\.\d{{1,9}})(/uneven)?", text)
    if match is None or float(match[2]) == 0.0:
        raise BadInput(
            f"remove must be one of {', '.join(PARTS)} and a share between 0 and 1, like heads:0.25, "
            f"got {text!r:.80}"
        )
    if match[3] and match[1] not in UNEVEN:
        raise BadInput(f"remove: only {' and '.join(UNEVEN)} can be uneven, got {text!r:.80}")
    return Removal(match[1], float(match[2]), match[3] is not None)


def parse_removals(texts: Iterable[str]) -> tuple[Removal, ...]:
    """Parse several texts, see `parse_removal`. Raise BadInput also for a part that is given twice."""
    found = {}
    for text in texts:
        removal = parse_removal(text)
        if removal.part in found:
            raise BadInput(f"remove: wanted every part once, got {removal.part} twice")
        found[removal.part] = removal
    return tuple(found.values())


def without(name: str, shape: Transformer, removals: Iterable[Removal]) -> Transformer:
    """Return the sizes of a transformer after removals.

    An uneven removal does not change the number of parts here; `removed_parts.with_layer_sizes` sets it for
    each layer.

    Parameters
    ----------
    name : name of the model, used in messages

    Raises
    ------
    BadInput : the model has no parts of a requested kind, parts cannot be removed from such a model, or a
        share removes no part or too many parts
    """
    if shape.mels and shape.causal:
        raise BadInput(f"{name}: remove is of models with layers of one kind, got an encoder and a decoder")
    if shape.mels or shape.position_bias:
        raise BadInput(f"{name}: remove is of models of text without biases of positions")
    if shape.key_rank:
        raise BadInput(f"{name}: remove is of models without latent attention (MLA)")
    if shape.layer_sizes:
        raise BadInput(f"{name}: its layers have sizes of their own: remove parts of the model before that")
    for removal in removals:
        shape = _reduced(name, shape, removal)
    return shape


def key_groups(shape: Transformer) -> int:
    """Return the number of key heads. Each is removed together with the query heads that share it."""
    return shape.key_heads or shape.heads


def counts_of(shape: Transformer) -> dict[str, int]:
    """Return part -> number of such parts in a layer (`heads`: key heads); `layers` -> number of layers."""
    return {
        "layers": shape.layers,
        "heads": key_groups(shape),
        "widths": shape.feed_forward,
        "experts": shape.experts,
    }


def step_of(part: str, shape: Transformer) -> int:
    """Return the step s of a kind of part: a layer keeps a multiple of s parts of this kind."""
    wide = shape.feed_forward if part == "widths" else 0
    return next((s for s in WIDTH_STEPS if wide % s == 0 and wide >= FEWEST_STEPS * s), 1)


def kept_of_layer(name: str, shape: Transformer, removal: Removal) -> int:
    """Return the number of parts to keep in a layer (the mean if layers differ), or the number of layers.

    Raise BadInput in the same cases as `without`.
    """
    part, least, step = removal.part, 1, 1
    if part == "layers" and shape.global_every:
        raise BadInput(f"{name}: its layers alternate between windows: no layers are removed from it")
    if part == "experts" and not shape.experts:
        raise BadInput(f"{name} has no experts: wanted a mixture of experts, got {removal.text}")
    if part == "experts":
        least = shape.experts_per_token
    if part == "widths" and shape.experts:
        raise BadInput(f"{name}: widths are of models without experts: remove experts instead")
    if part == "widths":
        least = step = step_of(part, shape)
    count = counts_of(shape)[part]
    kept = round((1.0 - removal.share) * count / step) * step
    if not least <= kept < count:
        raise BadInput(
            f"{name}: {removal.text} leaves {kept} of {count} {part}, wanted {least} to {count - step}"
        )
    return kept


def _reduced(name: str, shape: Transformer, removal: Removal) -> Transformer:
    """Return the sizes after one removal. Raise BadInput in the same cases as `without`."""
    kept, width = kept_of_layer(name, shape, removal), shape.width // shape.heads
    if removal.is_uneven:
        return replace(shape, head_width=width) if removal.part == "heads" else shape
    if removal.part == "heads":
        heads = shape.heads // key_groups(shape) * kept
        return replace(shape, heads=heads, key_heads=kept, head_width=width)
    if removal.part == "widths":
        return replace(shape, feed_forward=kept)
    return replace(shape, layers=kept) if removal.part == "layers" else replace(shape, experts=kept)
