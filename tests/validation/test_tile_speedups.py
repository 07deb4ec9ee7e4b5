"""`benchmarks.tile`: its suite can be planned, and a speedup is that of the faster tiles over dense."""

from dataclasses import replace

import pytest

from benchmarks.tile.__main__ import report, speedups, suite
from benchmarks.tile.cases import GPU, LAYERS
from prunecast.launch import Conditions
from prunecast.validation.case import Case
from prunecast.validation.case_maps import case_plan, map_of
from prunecast.validation.records import Measurement, read_runs
from prunecast.validation.suite import load_suite
from prunecast.validation.validate import bundled_records


@pytest.fixture
def cases(tmp_path):
    (tmp_path / "tile.toml").write_text(suite())
    return load_suite(str(tmp_path / "tile.toml")).cases


def test_every_layer_has_dense_tiles_and_2_of_4(cases):
    for m, k, n in LAYERS:
        own = [
            (case.kernels, case.pattern, case.sparsity)
            for case in cases
            if (case.m, case.k, case.n) == (m, k, n)
        ]
        assert (("dense",), "dense", 0.0) in own
        for height in (128, 256):
            assert {s for _, pattern, s in own if pattern == f"tile-wise:{height}"} == {0.0, 0.5, 0.75, 0.9}
            assert {s for _, pattern, s in own if pattern == f"tvw:{height}"} == {0.75, 0.875}


def test_cases_of_a_small_layer_have_plans(cases):
    for case in (case for case in cases if (case.m, case.k) == (768, 3072)):
        kept = map_of(case)
        for kernel in case.kernels:
            plan = case_plan(case, kernel, kept, GPU)
            assert plan.density == pytest.approx(1.0 - case.sparsity, rel=0.1)


def row(kernel, pattern, sparsity, seconds, **changes):
    names = {"name": f"{pattern} {sparsity}", "m": 512, "k": 2048, "n": 4096, "dtype": "fp16", "use": "judge"}
    case = Case(**names, pattern=pattern, sparsity=sparsity, kernels=(kernel,))
    measured = Measurement(case=case, kernel=kernel, seconds=seconds, excess=0.5)
    return replace(measured, case=replace(case, **changes))


def test_the_faster_tiles_count():
    rows = [
        row("dense", "dense", 0.0, 6e-6),
        row("stspmm", "tile-wise:128", 0.75, 3e-6),
        row("stspmm", "tile-wise:256", 0.75, 2e-6),
        row("stspmm", "tile-wise:256", 0.75, 1e-6, distribution="one-full"),
        row("stspmm", "vector-wise:64", 0.75, 1e-6),
        row("stspmm", "tile-wise:256", 0.75, 1e-6, conditions=Conditions("sustained")),
        row("2:4", "tvw:128", 0.875, 1.5e-6, distribution="random"),
        row("stspmm", "tile-wise:128", 0.9, 1e-6, k=2000),
    ]
    layer = (512, 2048, 4096)
    assert speedups(rows) == {
        ("2:4", 0.875): {layer: pytest.approx(4.0)},
        ("stspmm", 0.75): {layer: pytest.approx(3.0)},
        ("stspmm", 0.9): {},
    }


def test_a_run_is_reported(capsys):
    runs = read_runs(bundled_records("h200-sxm")[0])
    report(speedups(one for run in runs for one in run.rows))
    assert "stspmm 75.0% sparse, five large: 3." in capsys.readouterr().out
