"""Physics as laws on layers drawn at random: sparser, fewer tokens, more SMs, more bandwidth are no slower.

Where a prediction may go against a law, `ALLOWED` says by how much and why. `python -m tests.laws` looks at
as many cases as asked, and prints the worst.
"""

import pytest

from prunecast.kernels import KERNELS
from tests.laws import ALLOWED, LAWS, allowed, drawn, excess

RUN = [name for name, kernel in KERNELS.items() if not kernel.parts]
OWN_SPARSITY = {name for name in RUN if KERNELS[name].natural_pattern in ("2:4", "dense")}
SEEDS = range(6)
SIMULATED = 2**27
"""Multiplications up to which a case is small enough to be simulated here."""


def pairs():
    return [
        (kernel, law) for kernel in RUN for law in LAWS if not (law == "sparser" and kernel in OWN_SPARSITY)
    ]


@pytest.mark.parametrize(("kernel", "law"), pairs())
def test_the_closed_form_keeps_the_laws(kernel, law):
    found = {seed: excess(law, drawn(kernel, seed), "model") for seed in SEEDS}
    against = {seed: over for seed, over in found.items() if over is not None and over > allowed(law, kernel)}
    assert not against


@pytest.mark.parametrize(
    ("kernel", "law"), [pair for pair in pairs() if pair[0] in ("stspmm", "small-n", "csr")]
)
def test_the_simulator_keeps_the_laws(kernel, law):
    cases = [
        case for case in (drawn(kernel, seed) for seed in range(12)) if case.m * case.k * case.n <= SIMULATED
    ]
    assert cases
    against = {
        case.seed: over
        for case in cases[:2]
        for over in (excess(law, case, "simulator"),)
        if over is not None and over > allowed(law, kernel)
    }
    assert not against


def test_every_allowance_says_why_and_is_of_a_kernel():
    for (law, kernel), (share, why) in ALLOWED.items():
        assert law in LAWS
        assert kernel in (*RUN, "")
        assert 0.0 < share <= 0.25
        assert len(why) > 20
