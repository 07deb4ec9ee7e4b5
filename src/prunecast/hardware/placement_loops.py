"""Numba loops that simulate consecutive launches, several of which are resident on a GPU at once."""

import numpy as np

from prunecast.jit import inner, njit


@inner()
def _run_launch(length, sm, fit, sms, out_ends):  # type: ignore[no-untyped-def]
    """Compute the ends of blocks that start at the same time, with contention between blocks on one SM.

    Block i with duration L_i (without contention) ends at L_i + 1/2 * sum of min(L_i, L_j) over the other
    blocks j on its SM. The ends are written to `out_ends`, (blocks,).
    """
    count, on_sm = np.zeros(sms, np.int64), np.empty((sms, fit))
    for block in range(length.size):
        on_sm[sm[block], count[sm[block]]] = length[block]
        count[sm[block]] += 1
    for block in range(length.size):
        shared = -length[block]
        for slot in range(count[sm[block]]):
            shared += min(length[block], on_sm[sm[block], slot])
        out_ends[block] = length[block] + shared / 2.0


@njit()
def follow_launches(length, jitter, fit, sms, out_sm, out_longest):  # type: ignore[no-untyped-def]
    """Simulate on which SMs the blocks of consecutive launches run.

    The first blocks are assigned to SMs round robin until all block slots are full. Each later block starts
    in the slot of the next block that ends. All blocks of a launch start to work at the same time, when the
    preceding launch has ended.

    length : (blocks,) float64 duration of each block without contention; no more blocks than slots
    jitter : (launches, blocks) float64 factors on the end times, which decide the order in which blocks end
    fit, sms : number of slots of an SM; number of SMs
    out_sm : (launches, blocks) int64; receives the SM of each block
    out_longest : (launches,) float64; receives the duration of each launch, without jitter
    """
    launches, blocks = out_sm.shape
    ends, following = np.empty(blocks), min(fit * sms, launches * blocks)
    for place in range(following):
        out_sm[place // blocks, place % blocks] = place % sms
    for launch in range(launches):
        _run_launch(length, out_sm[launch], fit, sms, ends)
        out_longest[launch] = ends.max()
        for block in np.argsort(ends * jitter[launch]):
            if following < launches * blocks:
                out_sm[following // blocks, following % blocks] = out_sm[launch, block]
                following += 1
