"""`Attention`: the sizes of one attention call."""

from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.kernels.device.attention.attention import MOST_KEYS, WIDTHS


class Attention(NamedTuple):
    """Sizes of one attention call (scores, softmax, weighted sum of values) for equally long sequences."""

    sequences: int
    queries: int
    """New tokens of each sequence."""
    keys: int
    """Tokens of each sequence whose keys and values exist at the end of the pass."""
    heads: int
    """Query heads."""
    key_heads: int
    """Heads of keys and values; each serves `heads / key_heads` query heads."""
    head_width: int
    """Features of a head."""
    is_causal: bool
    window: int = 0
    """Number of preceding tokens that a token attends to; 0 for all."""
    has_mask: bool = False
    """True if an attention mask is passed as a tensor."""
    masks_keys: bool = False
    """True if the mask is the padding of the keys of each sequence, the same for all queries and heads."""

    @property
    def width(self) -> int:
        """Number of query features of all heads: heads times head width."""
        return self.heads * self.head_width

    @property
    def cached(self) -> int:
        """Tokens of each sequence that are already in the cache; 0 if the keys belong to another sequence
        (cross-attention).
        """
        return max(self.keys - self.queries, 0) if self.is_causal else 0

    @property
    def reads_mask_of_keys(self) -> bool:
        """True if torch models run this project's kernel for padding masks, after `prepare_attention`."""
        is_encoder = self.masks_keys and not self.is_causal and not self.window
        return is_encoder and self.head_width in WIDTHS and self.keys <= MOST_KEYS

    @property
    def writes_columns(self) -> bool:
        """True if this project's kernel may write its result as (features, tokens).

        Sparse products read X in this layout, so no transpose is needed.
        """
        return self.reads_mask_of_keys and self.queries % 8 == 0

    @property
    def phase(self) -> str:
        """`encoder` (not causal), `decode` (one new token) or `prefill`."""
        if not self.is_causal:
            return "encoder"
        return "decode" if self.queries == 1 else "prefill"

    @property
    def flops(self) -> float:
        """Floating-point operations of both products (scores, and weighted sum of values)."""
        keys = mean_keys(self.cached, self.queries, self.window) if self.is_causal else self.keys
        return 4.0 * self.sequences * self.queries * keys * self.width

    def checked(self) -> "Attention":
        """Check the sizes and return the object itself.

        Raises
        ------
        BadInput : a size is below 1, the number of key heads does not divide the number of heads, or there
            are more queries than keys with a causal mask
        """
        sizes = self._asdict()
        for name in ("sequences", "queries", "keys", "heads", "key_heads", "head_width"):
            if sizes[name] < 1:
                raise BadInput(f"attention: {name} must be at least 1, got {sizes[name]}")
        if self.heads % self.key_heads:
            raise BadInput(f"attention: {self.key_heads} key heads do not divide {self.heads} heads")
        if self.is_causal and self.queries > self.keys:
            raise BadInput(
                f"attention: a causal mask needs at least as many keys as queries, got {self.keys} keys and "
                f"{self.queries} queries"
            )
        return self


def mean_keys(cached: int, tokens: int, window: int) -> float:
    """Return the mean number of keys that each of `tokens` new tokens attends to under a causal mask.

    A token attends to the tokens before it, at most `window` of them (0 for no limit).

    Parameters
    ----------
    cached : number of tokens before the new ones
    """
    last = cached + tokens
    full = min(max(window or last, cached), last)
    before = (full**2 - cached**2) / 2.0 if full > cached else 0.0
    return (before + (window or last) * (last - full)) / tokens
