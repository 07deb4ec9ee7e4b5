"""Experts beside a part that every token passes, as in Llama 4."""

import pytest

from prunecast.codesign import predict
from prunecast.errors import BadInput
from prunecast.workload.graph import load_pass, parse_workload
from prunecast.workload.graph.shapes import transformers
from tests.naive.transformer_weights import layer_weights

SCOUT = transformers()["llama-4-scout"]


def test_every_token_passes_the_shared_expert():
    (run,) = parse_workload("decode:16@4096")
    graph = load_pass("llama-4-scout", run)
    shared = {name: product for name, product in graph.products.items() if ".shared." in name}
    assert {(p.m, p.k) for p in shared.values()} == {(8192, 5120), (5120, 8192)}
    assert {p.n for p in shared.values()} == {16}
    assert sum(p.copies for p in shared.values()) == 3 * SCOUT.layers
    layers = sum(p.m * p.k * p.copies for name, p in graph.products.items() if name.startswith("layers"))
    routers = SCOUT.layers * SCOUT.experts * SCOUT.hidden
    assert layers == layer_weights(SCOUT) + routers
    assert layers + 2 * SCOUT.head * SCOUT.hidden == pytest.approx(108e9, rel=0.02)  # card: 109 B


def test_a_share_of_it_is_on_each_gpu():
    assert SCOUT.share(4).shared_expert == SCOUT.shared_expert // 4
    assert layer_weights(SCOUT.share(4)) == pytest.approx(layer_weights(SCOUT) / 4)


def test_what_is_not_counted_is_listed():
    asked = {"gpu": "h200-sxm", "engine": "model", "kernels": "dense", "crossovers": False}
    found = predict("meta-llama/Llama-4-Scout-17B-16E", workload="decode:1@64", **asked)
    reasons = [one.reason for one in found.skipped if one.layer == "llama-4-scout"]
    assert len(reasons) == 1
    assert "vision tower" in reasons[0]
    with pytest.raises(BadInput, match="its layers alternate"):
        predict("llama-4-maverick", **asked)
