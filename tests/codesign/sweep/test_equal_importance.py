"""Sweeps whose patterns retain equal parts of the importance."""

from dataclasses import replace

import numpy as np
import pytest

from prunecast.cli import main
from prunecast.codesign.sweep import SweepStore, at_equal_importance, expand
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern, retained_importance, weigh

CASES = {"gpus": ["a100-sxm4-40gb"], "shapes": [(256, 256, 512)], "sparsities": [0.75]}
PATTERNS = ["tile-wise:64", "block:32x32", "unstructured", "2:4", "tvw:64"]


def retained(case):
    weights = np.random.default_rng(case.seed).standard_normal((case.m, case.k), np.float32)
    scores = weigh("w", weights)
    return retained_importance(scores, parse_pattern(case.pattern).prune({"w": scores}, case.sparsity)["w"])


def test_all_patterns_retain_what_the_reference_does_and_no_sparsity_more_would():
    cases = expand(patterns=PATTERNS, **CASES)
    found = {case.pattern: case for case in at_equal_importance(cases, "tile-wise:64")}
    reference = found["tile-wise:64"]
    assert reference.sparsity == 0.75
    assert found["2:4"].sparsity is None
    assert found["block:32x32"].sparsity < 0.75 < found["unstructured"].sparsity
    for pattern in ("block:32x32", "unstructured", "tvw:64"):
        case = found[pattern]
        assert retained(case) >= retained(reference)
        sparser = replace(case, sparsity=case.sparsity + 0.002)
        assert retained(sparser) < retained(reference)


def test_a_pattern_that_cannot_retain_so_much_is_left_out():
    """Half of the elements in 2:4 at best: less than three quarters of the tiles."""
    cases = expand(patterns=["tile-wise:64", "tvw:64"], **{**CASES, "sparsities": [0.05]})
    assert {case.pattern for case in at_equal_importance(cases, "tile-wise:64")} == {"dense", "tile-wise:64"}


def test_an_unknown_reference_is_refused():
    with pytest.raises(BadInput, match="pattern"):
        at_equal_importance(expand(patterns=["tile-wise:64"], **CASES), "no-pattern")


def test_the_command_stores_the_sparsities(tmp_path, capsys):
    file = tmp_path / "s.sqlite"
    asked = ["sweep", "-o", str(file), "--shape", "256x256x512", "--sparsity", "0.75", "--workers", "1"]
    patterns = [word for pattern in ("tile-wise:64", "block:32x32") for word in ("--pattern", pattern)]
    assert main([*asked, *patterns, "--as-important-as", "tile-wise:64"]) == 0
    with SweepStore(file) as store:
        found = {row["pattern"]: row["sparsity"] for row in store.rows()}
    assert found["block:32x32"] < found["tile-wise:64"] == 0.75
