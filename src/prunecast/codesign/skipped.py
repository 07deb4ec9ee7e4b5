"""`Skipped`: what a table leaves out, and why."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A tensor that is no layer, or a kernel that cannot run one.

    Parameters
    ----------
    layer : name of the tensor
    kernel : name of the kernel, None where the whole tensor was left out
    reason : one line
    weights : elements of a tensor that may be a product and was not predicted
    """

    layer: str
    kernel: str | None
    reason: str
    weights: int = 0

    def row(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return {"layer": self.layer, "kernel": self.kernel, "reason": self.reason}
