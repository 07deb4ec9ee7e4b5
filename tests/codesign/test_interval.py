import csv
from pathlib import Path

import pytest

from benchmarks.published.tables import TABLES
from prunecast.codesign import interval
from prunecast.codesign.interval import (
    GUESSED_COSTS_HIGHER,
    GUESSED_COSTS_LOWER,
    evidence_of,
    guessed_share,
    interval_s,
    interval_words,
)
from prunecast.codesign.layer_job import kernel_interval
from prunecast.hardware import load_gpu
from prunecast.kernels import KERNELS
from prunecast.workload.engines import Engine
from tests.kernels.layouts import PLANNED
from tests.kernels.test_grouped import expert_maps, plan_of


@pytest.mark.parametrize("kernel", PLANNED)
def test_a_guess_holds_the_prediction(kernel):
    found = interval_s(kernel, 2.0)
    assert found.low_s < 2.0 < found.high_s
    assert (found.kind, found.warning) == ("guess", "")


def test_csr_is_trusted_least_and_dense_most():
    width = {kernel: interval_s(kernel, 1.0).high_s / interval_s(kernel, 1.0).low_s for kernel in PLANNED}
    assert max(width, key=width.get) == "csr"
    assert min(width, key=width.get) == "dense"


@pytest.mark.parametrize("engine", ["simulator", "model"])
@pytest.mark.parametrize("kernel", ["dense", "stspmm", "tile-wise"])
def test_what_was_validated_says_so(kernel, engine):
    found = interval_s(kernel, 20e-6, gpu="h200-sxm", engine=engine, tokens=2048)
    assert (found.kind, found.warning) == ("validated", "")
    assert found.low_s < found.high_s


@pytest.mark.parametrize("state", ["burst", "sustained"])
@pytest.mark.parametrize("engine", ["simulator", "model"])
@pytest.mark.parametrize("kernel", PLANNED)
def test_every_interval_holds_its_prediction(kernel, engine, state):
    found = interval_s(kernel, 20e-6, gpu="h200-sxm", engine=engine, state=state)
    assert found.low_s < 20e-6 < found.high_s


def test_it_warns_outside_of_the_validated_range():
    long = interval_s("stspmm", 1.0, gpu="h200-sxm", tokens=2048)
    assert "outside the validated range" in long.warning
    one = interval_s("csr", 1e-5, gpu="h200-sxm", tokens=1)
    assert one.warning.startswith("1 token is outside the validated range")
    many = interval_s("stspmm", 20e-6, gpu="h200-sxm", tokens=1 << 20)
    assert "tokens" in many.warning


def test_other_gpus_are_guesses():
    assert interval_s("stspmm", 20e-6, gpu="a100-sxm4-80gb").kind == "guess"


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "b200", "l40s", "rtx-4090"])
def test_what_others_published_says_so_and_holds_the_prediction(gpu):
    found = interval_s("dense", 20e-6, gpu=gpu)
    assert found.kind == "published"
    assert found.low_s < 20e-6 < found.high_s
    assert "dense" in interval_words(gpu)
    assert "published" in interval_words(gpu)


def test_published_intervals_have_the_state_of_their_tables():
    rows = csv.DictReader((Path(interval.__file__).parent / "published.csv").read_text().splitlines())
    states = {(row["gpu"], row["kernel"], row["state"]) for row in rows}
    bounded = {(table.gpu, table.state) for table in TABLES if table.bounds}
    assert {(gpu, state) for gpu, _, state in states} == bounded
    for gpu, kernel, state in states:
        assert evidence_of(gpu) == "measured" or f"{kernel} ({state})" in interval_words(gpu)


def test_guessed_constants_of_a_gpu_widen():
    known, unknown = (guessed_share(load_gpu(name)) for name in ("h200-sxm", "rtx-5080"))
    assert (known, unknown) == (0.0, 1.0)
    narrow, wide = (interval_s("stspmm", 1.0, guessed_gpu=share) for share in (known, unknown))
    assert wide.low_s < narrow.low_s
    assert wide.high_s > narrow.high_s


def test_guesses_widen_with_the_share_of_costs_that_were_carried_over():
    own, half, all_of_them = (interval_s("stspmm", 1.0, guessed_costs=share) for share in (0.0, 0.5, 1.0))
    assert half.high_s / own.high_s == pytest.approx(1.0 + GUESSED_COSTS_HIGHER / 2.0)
    assert own.low_s / half.low_s == pytest.approx(1.0 + GUESSED_COSTS_LOWER / 2.0)
    assert all_of_them.high_s / own.high_s == pytest.approx(1.0 + GUESSED_COSTS_HIGHER)
    assert own.low_s / all_of_them.low_s == pytest.approx(1.0 + GUESSED_COSTS_LOWER)


def test_what_was_validated_does_not_widen():
    case = {"gpu": "h200-sxm", "tokens": 2048}
    assert interval_s("stspmm", 20e-6, **case) == interval_s("stspmm", 20e-6, guessed_costs=1.0, **case)


@pytest.mark.parametrize(("experts", "kind"), [(1, "validated"), (2, "guess"), (4, "guess")])
def test_grouped_launches_have_guessed_intervals_since_none_was_measured(experts, kind):
    engine = Engine(name="model", gpu=load_gpu("h200-sxm"))
    plan = plan_of("stspmm", expert_maps(experts, 256, 256), (64,) * experts)
    assert kernel_interval(engine, "stspmm", 20e-6, (plan,)).kind == kind


def test_only_architectures_with_files_of_costs_have_few_guesses():
    h100, a100 = load_gpu("h100-sxm"), load_gpu("a100-sxm4-80gb")
    assert max(KERNELS["stspmm"].guessed_costs(h100), KERNELS["2:4"].guessed_costs(h100)) < 0.05
    assert KERNELS["stspmm"].guessed_costs(a100) == 1.0
