"""Few tokens: what `predict` finds fastest is on the menu of `prune`; and layers of any shape have a menu."""

import itertools

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.codesign.search import Targets, prune_model


def weights(m, k, seed=0):
    return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float16)


def test_one_token_is_pruned_for_the_kernel_that_predict_finds_fastest():
    layer = {"a": weights(1024, 1024)}
    table = predict(layer, gpu="h200-sxm", tokens=1, engine="model", sparsity=0.75, crossovers=False)
    seconds = {row.kernel: row.seconds for row in table}
    found = prune_model(
        layer, Targets(latency_share=seconds["small-n"] / seconds["dense"]), gpu="h200-sxm", tokens=1,
        engine="model",
    )  # fmt: skip
    (chosen,) = found.result.layers
    assert chosen.kernel == "small-n"
    # the same time for tiles that are chosen with more freedom: no more has to go
    assert chosen.removed <= 0.76
    assert chosen.seconds <= 1.001 * seconds["small-n"]


def test_many_tokens_are_not():
    found = prune_model(
        {"a": weights(512, 512)}, Targets(latency_share=0.9), gpu="h200-sxm", tokens=4096, engine="model"
    )
    assert found.result.layers[0].kernel in ("dense", "stspmm", "2:4")


@pytest.mark.parametrize(
    ("m", "k"), [*itertools.product((1, 15, 63, 64, 128, 300, 1024), (1, 2, 4, 8, 15, 16, 17, 31, 33, 64))]
)
def test_every_shape_has_a_menu(m, k):
    found = prune_model(
        {"a": weights(m, k)}, Targets(latency_share=1.0), gpu="h200-sxm", tokens=8, engine="model"
    )
    assert found.result.seconds <= found.result.dense_seconds


def test_a_narrow_layer_costs_no_other_its_pruning():
    found = prune_model(
        {"narrow": weights(64, 16), "a": weights(2048, 2048)},
        Targets(latency_share=0.8),
        gpu="h200-sxm",
        tokens=4096,
        engine="simulator",
    )
    assert found.result.seconds <= 0.8 * found.result.dense_seconds
