"""Small weight matrices for tests: rows of very different size, so that tiles keep different amounts."""

import numpy as np
import numpy.typing as npt

__all__ = ["uneven"]


def uneven(m: int, k: int, *, seed: int = 0, dtype: npt.DTypeLike = np.float16) -> npt.NDArray[np.floating]:
    """(m, k) normal weights whose rows grow by a factor of ten from the first to the last."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, k)) * np.logspace(-1, 0, m)[:, None]).astype(dtype)
