"""What `incremental_loops.py` is handed: what stays while lengths change, what changes, rates of the GPU."""

from typing import NamedTuple

import numpy as np

__all__ = ["CHIP", "ClockPoints", "Launch", "Lists", "Now"]


class Lists(NamedTuple):
    """What stays while lengths change; items are in the order of the plan unless said otherwise."""

    part: np.ndarray
    """(items, 4) int64, by tile and those of a tile by k: item, start and stop of its columns in the plan,
    kind. Items of a kind differ in nothing but their columns."""
    part_start: np.ndarray
    """(tiles + 1,) int64 into `part`."""
    kept: np.ndarray
    """(tiles,) int64, of the plan."""
    cut_unit: int
    """Cuts lie at multiples of so many columns."""
    cost: np.ndarray
    """(kinds, K + 1, FIELDS) float64 of an item with so many columns."""
    wait: np.ndarray
    """(items,) float64, as in `costs.Starts`."""


class Now(NamedTuple):
    """What changes."""

    kept: np.ndarray
    """(tiles,) int64."""
    columns: np.ndarray
    """(items,) int64."""
    piece: np.ndarray
    """(items,) int64: the piece of A that an item reads, 0 <= piece < items."""
    cycles: np.ndarray
    """(CYCLES, items) float64, of which `loops.BlockLists` has the rows."""
    totals: np.ndarray
    """(tiles, FIELDS - TOTALS) float64."""


class Launch(NamedTuple):
    """Work and bytes of the launch."""

    tensor_cycles: float
    """Of all SMs together."""
    l2_bytes: float
    l2_draw: float
    """Power over that of as many bytes that each block reads at another time."""
    stored_bytes: float
    """Of `l2_bytes`, C and partial sums."""
    c_bytes: float
    written_bytes: float
    """By DRAM: C, and partial sums that L2 does not keep."""
    dram_bytes: float
    first_weights_s: float
    """As `first_weights.py` says."""


CHIP = np.dtype(
    [
        ("sm_count", np.int64),
        ("earlier_share", np.float64),  # of C, as in `costs.Case`
        ("quiet_cycles", np.float64),
        ("store_drain", np.float64),  # this and the next four as in `costs.Starts`
        ("later_rounds", np.float64),
        ("until_b", np.float64),
        ("before_b", np.float64),
        ("ends_apart", np.float64),
        ("late_share", np.float64),  # this and the next three as in `late_blocks.Lateness`
        ("late_most", np.float64),
        ("late_counted", np.float64),
        ("late_start", np.float64),
        ("spared_scale", np.float64),  # as `slow_sms.spared_scale` says
        ("l2_bytes_per_s", np.float64),
        ("l2_store_bytes_per_s", np.float64),
        ("requests_over_reads", np.float64),  # as `bounds.requests_over_reads` says
        ("c_line_cost", np.float64),  # as `row_lines.store_cost` says
        ("dram_bytes_per_s", np.float64),
        ("dram_write_bytes_per_s", np.float64),
        ("launch_s", np.float64),
        ("max_clock_hz", np.float64),
        ("tensor_activity", np.float64),  # of tensor work on the plan's numbers over that on fp16
        ("follow_s", np.float64),
        ("activity_per_l2_byte", np.float64),
        ("activity_per_dram_byte", np.float64),
    ]
)
"""Rates of the GPU. One record in an array is handed over in 0.3 us, as many numbers in a tuple in 1.4."""


class ClockPoints(NamedTuple):
    """SM clock against activity, (points,) float64."""

    activity: np.ndarray
    clock_hz: np.ndarray
