import numpy as np
import pytest

from prunecast.codesign import explain, predict
from prunecast.hardware import load_gpu
from prunecast.models import estimate
from prunecast.patterns import parse_pattern
from prunecast.patterns.tile_element import split_parts
from prunecast.workload.engines import Engine
from prunecast.workload.two_parts import LEAST_SHARES, blocks_in_two, launches_in_two, plan_in_two

H200 = load_gpu("h200-sxm")
ENGINE = Engine(name="model", gpu=H200)
W = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float16)


def test_the_split_is_the_fastest_of_all_that_are_tried():
    pattern = parse_pattern("tile-element:128x2")
    kept = pattern.map(pattern.prune({"w": np.abs(W)}, 0.75)["w"])
    launches = launches_in_two(kept, 1024, "fp16", ENGINE)
    seconds = sum(estimate(plan, H200).seconds for plan in launches)
    tried = []
    for share in LEAST_SHARES:
        both = plan_in_two(split_parts(kept, height=128, least_share=share), 1024, "fp16", H200)
        tried.append(sum(estimate(launch, H200).seconds for launch in both))
    assert seconds == min(tried)
    assert min(tried) < max(tried)


def quick(**options):
    return predict(
        W, **{"gpu": "h200-sxm", "tokens": 1024, "engine": "model", "crossovers": False, **options}
    )


def test_two_parts_are_predicted_beside_the_others():
    table = {row.kernel: row for row in quick(pattern="tile-element:128", sparsity=0.75)}
    assert list(table) == ["dense", "two-part", "csr"]
    both = table["two-part"]
    assert (both.pattern, both.sparsity) == ("tile-element:128", table["csr"].sparsity)
    assert both.seconds < table["csr"].seconds
    assert "of the kept weights in the sparse remainder" in both.note
    assert "two-part" not in {row.kernel for row in quick()}
    assert [row.kernel for row in quick(kernels=["two-part"])] == ["dense", "two-part"]


def test_dense_blocks_keep_leftovers_where_that_is_worth_its_time():
    scores = np.abs(W).astype(np.float32)
    parts = blocks_in_two(scores, 0.75, (8,), 1024, "fp16", ENGINE)
    assert parts.density == pytest.approx(0.25, abs=0.01)
    row = quick(pattern="dense-block:8", kernels=["two-part"], sparsity=0.75)[-1]
    assert row.pattern == "dense-block:8"
    assert row.sparsity == pytest.approx(1 - parts.density)


def test_two_parts_have_a_crossover_and_an_explanation():
    table = quick(pattern="tile-element:128", crossovers=True)
    assert {crossover.kernel for crossover in table.crossovers} == {"two-part", "csr"}
    blocks = quick(pattern="dense-block:8", kernels=["two-part"], crossovers=True)
    assert {crossover.kernel for crossover in blocks.crossovers} == {"two-part"}
    told = explain(W, gpu="h200-sxm", tokens=1024, engine="model", pattern="tile-element:128")
    assert told.prediction.kernel == "two-part"
    assert any("stspmm" in line.change for line in told.advice)
