"""GPU files with `like`: what is carried over, in which proportion, and what is refused."""

import tomllib
from importlib import resources

import pytest

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.hardware.load import OWN, parse_spec, with_relative


def text_of(name):
    return (resources.files("prunecast.hardware") / "data" / f"{name}.toml").read_text(encoding="utf-8")


def test_limits_of_the_same_architecture_hold_and_the_rest_is_a_guess():
    own, relative = load_gpu("a40"), load_gpu("rtx-3090")
    assert own.warps_per_sm == relative.warps_per_sm
    assert own.provenance["warps_per_sm"].kind == "datasheet"
    guess = own.provenance["l2_latency_cycles"]
    assert (guess.kind, own.l2_latency_cycles) == ("guess", relative.l2_latency_cycles)
    assert "rtx-3090" in guess.source


def test_bandwidths_and_clocks_keep_their_share_of_what_the_vendor_prints():
    own, relative = load_gpu("rtx-4080"), load_gpu("rtx-4090")
    for achieved, peak in (("dram_bytes_per_s", "dram_peak_bytes_per_s"), ("l2_usable_bytes", "l2_bytes")):
        share = getattr(own, achieved) / getattr(own, peak)
        assert share == pytest.approx(getattr(relative, achieved) / getattr(relative, peak), rel=1e-5)
    assert own.clock_burst_hz[0] / own.max_clock_hz == pytest.approx(
        relative.clock_burst_hz[0] / relative.max_clock_hz, rel=1e-5
    )


def test_less_power_for_each_sm_brings_the_clock_down_sooner():
    whole, low = load_gpu("h100-sxm"), load_gpu("h100-nvl")
    assert low.clock_activity[-1] < whole.clock_activity[-1]


@pytest.mark.parametrize("name", OWN)
def test_what_the_vendor_prints_must_be_given(name):
    document = tomllib.loads(text_of("a40"))
    del document[name]
    with pytest.raises(BadInput, match=f"mine: {name}: quantity is missing"):
        with_relative(document, tomllib.loads(text_of("rtx-3090")), "mine")


@pytest.mark.parametrize(
    ("like", "told"), [('"h2000"', "name of a bundled GPU"), ('"a40"', "whole file"), ("3", "name")]
)
def test_relatives_that_do_not_serve_are_named(like, told):
    text = text_of("a40").replace('like = "rtx-3090"', f"like = {like}")
    with pytest.raises(BadInput, match=told):
        parse_spec(text.encode(), "mine.toml")
