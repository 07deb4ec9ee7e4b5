"""Fused experts: tokens per expert, grouped products, and the time of a layer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels.libraries.experts.call import FORMS, ExpertLayer, fused_experts, grouped_work, tile_of
from prunecast.kernels.libraries.experts.routing import expert_loads
from prunecast.kernels.libraries.tiled import Tile

H100 = load_gpu("h100-sxm")
QWEN = ExpertLayer(experts=128, per_token=8, hidden=2048, width=768, tokens=16)
ROUTINGS = ("balanced", "random", "power-law:1", "power-law:1.01", "power-law:1.2", "power-law:3")
routings = st.sampled_from(ROUTINGS)


@st.composite
def layers(draw):
    experts = draw(st.integers(1, 96))
    return experts, draw(st.integers(1, experts)), draw(st.integers(1, 3000)), draw(routings)


@given(layers())
def test_loads_are_whole_tokens_of_all_places(layer):
    experts, per_token, tokens, routing = layer
    loads = expert_loads(experts, per_token, tokens, routing)
    assert loads.size == experts
    assert loads.sum() == per_token * tokens
    assert (loads == np.round(loads)).all()
    assert loads[0] >= 0
    assert loads[-1] <= tokens
    assert (np.diff(loads) >= 0).all()


@pytest.mark.parametrize("tokens", [4, 16, 64])
def test_random_loads_are_those_of_drawn_tokens(tokens):
    draw = np.random.default_rng(0)
    chosen = [
        np.bincount(np.concatenate([draw.permutation(64)[:4] for _ in range(tokens)]), minlength=64)
        for _ in range(200)
    ]
    loads = expert_loads(64, 4, tokens, "random")
    idle = np.mean([(each == 0).sum() for each in chosen])
    assert (loads == 0).sum() == pytest.approx(idle, abs=1.5)
    assert loads[-1] == pytest.approx(np.mean([each.max() for each in chosen]), rel=0.35)


def test_a_power_law_is_that_of_drawn_loads():
    draw = np.random.default_rng(1)
    experts, per_token, tokens, exponent = 128, 8, 256, 1.2
    low, high = 1.0, 0.8 * tokens
    means = np.zeros(experts)
    for _ in range(200):
        power = 1.0 - exponent
        x = ((high**power - low**power) * draw.random(experts) + low**power) ** (1.0 / power)
        means += np.sort(x / x.sum()) * per_token * tokens / 200
    loads = expert_loads(experts, per_token, tokens, f"power-law:{exponent}")
    assert np.abs(loads - means).max() <= 0.1 * means.max()


def test_a_steeper_power_law_is_less_even():
    largest = [expert_loads(128, 8, 512, f"power-law:{a}")[-1] for a in (0.5, 1.01, 1.2, 2.0)]
    assert largest == sorted(largest)
    assert largest[0] > expert_loads(128, 8, 512, "balanced")[-1]


@given(layers(), st.integers(1, 500), st.integers(1, 500))
def test_grouped_work_counts_padded_tiles_and_reads_each_active_expert_once(layer, m, k):
    loads = expert_loads(*layer)
    tile = Tile(rows=64, tokens=16, k=64, warps=4)
    tiles, weights = 0, 0
    for tokens in loads:
        tiles += sum(1 for _ in range(0, int(tokens), 16) for _ in range(0, m, 64))
        weights += m * k if tokens else 0
    work = grouped_work(loads, m, k, "bf16", tile, H100, read=10)
    assert work.tiles == tiles
    assert work.dram_bytes == 2 * (weights + 10 * k + loads.sum() * m)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("routing", ROUTINGS)
def test_parts_add_up_and_more_tokens_need_longer(form, routing):
    last = 0.0
    for tokens in (1, 8, 64, 512, 4096):
        call = fused_experts(QWEN._replace(tokens=tokens, routing=routing), H100, form=form)
        assert call.seconds == pytest.approx(sum(call.parts.values()))
        assert call.seconds_low < call.seconds < call.seconds_high
        assert call.seconds > last
        last = call.seconds


def test_a_fused_layer_needs_at_least_the_traffic_of_its_active_experts():
    for tokens in (1, 16, 256):
        layer = QWEN._replace(tokens=tokens)
        moved = 2 * 3 * layer.hidden * layer.width * np.count_nonzero(layer.loads)
        assert fused_experts(layer, H100).seconds > moved / H100.dram_peak_bytes_per_s


def test_skew_saves_idle_experts_at_few_tokens_and_costs_padding_at_many():
    few, many = QWEN._replace(tokens=16), QWEN._replace(tokens=4096)

    def seconds(layer, routing):
        return fused_experts(layer._replace(routing=routing), H100).seconds

    assert seconds(few, "power-law:1.2") < seconds(few, "random") < seconds(few, "balanced")
    assert seconds(many, "balanced") < seconds(many, "power-law:1.2")


def test_experts_without_a_gate_are_faster():
    gated, plain = (fused_experts(QWEN._replace(gated=gated), H100).seconds for gated in (True, False))
    assert 0.6 * gated < plain < gated


def test_a_faster_memory_helps_few_tokens_most():
    h200 = load_gpu("h200-sxm")
    few, many = (
        fused_experts(QWEN._replace(tokens=tokens, routing="balanced"), h200).seconds
        / fused_experts(QWEN._replace(tokens=tokens, routing="balanced"), H100).seconds
        for tokens in (64, 8192)
    )
    assert few < many <= 1.001


def test_every_number_of_tokens_has_a_tile():
    for form in FORMS:
        for tokens in (1, 2, 16, 33, 65, 97, 129, 513, 10_000, 10**7):
            assert min(tile_of(form, QWEN._replace(tokens=tokens))) >= 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"per_token": 200}, "experts per token must be 1 to the 128 experts, got 200"),
        ({"per_token": 0}, "got 0"),
        ({"routing": "zipf"}, "routing must be random, balanced or like power-law:1.2, got 'zipf'"),
        ({"routing": "power-law:"}, "power-law:1.2"),
        ({"routing": "power-law:nan"}, "power-law:1.2"),
        ({"tokens": 0}, "tokens of at least 1"),
    ],
)
def test_bad_experts_are_refused_in_one_line(changed, words):
    with pytest.raises(BadInput, match=words.replace("(", r"\(")) as error:
        fused_experts(QWEN._replace(**changed), H100)
    assert "\n" not in str(error.value)


def test_an_unknown_form_is_refused():
    with pytest.raises(BadInput, match="form of experts"):
        fused_experts(QWEN, H100, form="tensorrt")
