"""Kinds of items: alike means the same sizes, and nothing is lost by counting them once."""

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.models import amounts as module
from prunecast.models.amounts import _item_kinds
from prunecast.patterns import parse_pattern

GPU = load_gpu("h200-sxm")


def plan_of(text, kernel, *, n=200):
    importance = np.abs(np.random.default_rng(0).standard_normal((300, 1024)))
    pattern = parse_pattern(text)
    kept = pattern.map(pattern.prune({"w": importance}, 0.8)["w"])
    return fastest_plan(kernel, kept, n, "fp16", GPU)


PLANS = {"stspmm": plan_of("tile-wise:64", "stspmm"), "csr": plan_of("unstructured", "csr")}


def sizes(plan):
    work = plan.work
    columns = (work.k_stop - work.k_start, work.token_stop - work.token_start, work.parts, work.owner)
    return list(zip(*columns, plan.tiles.rows_per_tile[work.tile], strict=True))


@pytest.mark.parametrize("largest", [module.LARGEST_TABLE, 1])
@pytest.mark.parametrize("name", PLANS)
def test_items_of_a_kind_have_the_same_sizes_and_those_of_two_kinds_do_not(name, largest, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_TABLE", largest)
    plan = PLANS[name]
    kinds, each = _item_kinds(plan), sizes(plan)
    assert len(set(each)) == kinds.example.size
    assert [each[item] for item in kinds.example[kinds.of_item]] == each
    np.testing.assert_array_equal(kinds.members, np.bincount(kinds.of_item))
