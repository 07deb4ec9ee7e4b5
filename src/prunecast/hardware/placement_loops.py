"""The jitted loop of launches that follow one another on a GPU, several deep."""

import numpy as np

from prunecast.jit import inner, njit


@inner()
def _run_launch(length, sm, fit, sms, out_ends):  # type: ignore[no-untyped-def]
    """Ends of blocks that begin together: half of what two blocks do on one SM they do in turns."""
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
    """Place the blocks of launch after launch: the first ones on all SMs in turn, each later one where the
    next block ends. All blocks of a launch set out together, when the one before it has ended.

    length : (blocks,) float64, of no more blocks than places
    jitter : (launches, blocks) float64, what lengths are multiplied with where it says which block ends first
    fit, sms : places of an SM; SMs
    out_sm : (launches, blocks) int64; becomes the SM of each block
    out_longest : (launches,) float64; becomes how long each launch takes, jitter left out
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
