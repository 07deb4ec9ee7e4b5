"""The balanced kernels in numpy, from the bytes that the device gets."""

import numpy as np
import numpy.typing as npt

from prunecast.kernels.balanced.layout import BalancedLayout, VectorLayout

Floats = npt.NDArray[np.float64]


def run_matrix(packed: dict, layout: BalancedLayout, m: int, b: Floats, column_bytes: int) -> Floats:
    """C (M, N): every record of every group, as `multiply_window` reads it."""
    groups, windows, _ = packed["windows"].shape
    sums = np.zeros((16 * groups, b.shape[1]))
    for group in range(groups):
        for w in range(windows):
            first, pairs = packed["windows"][group, w]
            own = np.zeros((layout.window + 1, b.shape[1]))  # a window, and the zeros behind it
            rows = b[w * layout.window : (w + 1) * layout.window]
            own[: rows.shape[0]] = rows
            _add_record(
                sums[16 * group : 16 * group + 16],
                packed["records"][first:],
                pairs,
                layout,
                own,
                column_bytes,
            )
    return sums[:m]


def _add_record(sums, words, pairs, layout, own, column_bytes):
    places = words[8 * pairs + 6 * layout.rest :].reshape(-1).view(np.uint16)
    for i in range(2 * pairs):
        values = words[4 * i : 4 * i + 4].reshape(-1).view(np.float32)
        sums += np.outer(values, own[places[i] // column_bytes])
    rest = words[8 * pairs : 8 * pairs + 6 * layout.rest].reshape(-1)
    shape = (4, layout.rest // 2, 4, 2)  # row of the quarter, pair, quarter, element of the pair
    values = rest[: 16 * layout.rest].view(np.float32).reshape(shape)
    places = rest[16 * layout.rest :].view(np.uint16).reshape(shape)
    for r, j, quarter, e in np.ndindex(shape):
        sums[4 * quarter + r] += values[r, j, quarter, e] * own[places[r, j, quarter, e] // column_bytes]


def run_vector(packed: dict, layout: VectorLayout, m: int, b: Floats) -> Floats:
    """C (M, 1), lane by lane from the banks."""
    rounds = layout.places // layout.segment
    padded = np.zeros(rounds * 32 * layout.segment)
    padded[: b.shape[0]] = b[:, 0]
    banks = padded.reshape(rounds, 32, layout.segment).transpose(1, 0, 2).reshape(32, -1)
    banks = np.concatenate((banks, np.zeros((32, 1))), axis=1)
    lane = np.arange(32)[:, None]
    products = packed["values"].astype(np.float64) * banks[lane, packed["indices"]]
    return products.sum(axis=(1, 3, 4)).reshape(-1, 1)[:m]
