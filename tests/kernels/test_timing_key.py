"""Plans whose time cannot differ have one key; all others have their fingerprint."""

import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.models import estimate
from prunecast.simulator import simulate
from tests.kernels.layouts import tiles_keeping, two_of_four

H200 = load_gpu("h200-sxm")


@pytest.mark.parametrize("kernel", ["2:4", "cusparselt"])
@pytest.mark.parametrize("n", [64, 1000])
def test_which_two_of_four_stay_does_not_change_the_time(kernel: str, n: int) -> None:
    one, other = (fastest_plan(kernel, two_of_four(512, 768, seed), n, "fp16", H200) for seed in (0, 1))
    assert one.fingerprint() != other.fingerprint()
    assert one.timing_key() == other.timing_key()
    assert estimate(one, H200).seconds == estimate(other, H200).seconds
    assert simulate(one, H200).seconds == simulate(other, H200).seconds


def test_other_sizes_kernels_and_tiles_have_other_keys() -> None:
    elements = two_of_four(512, 768)
    plans = [fastest_plan("2:4", elements, n, "fp16", H200) for n in (64, 1000)]
    plans += [fastest_plan("cusparselt", elements, 64, "fp16", H200)]
    plans += [fastest_plan("2:4", two_of_four(512, 1024), 64, "fp16", H200)]
    assert len({plan.timing_key() for plan in plans}) == len(plans)
    tiles = fastest_plan("stspmm", tiles_keeping([256] * 4, height=128, k=768), 64, "fp16", H200)
    assert tiles.timing_key() == tiles.fingerprint()
