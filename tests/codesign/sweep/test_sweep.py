"""Sweeps: all cases once, kept through reruns and dying workers, the same on every executor."""

import contextlib
import inspect
import itertools
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from importlib import import_module, resources

import numpy as np
import pytest

from prunecast.codesign import predict
from prunecast.codesign.sweep import (
    SweepStore,
    expand,
    open_executor,
    predict_group,
    run_sweep,
)
from prunecast.codesign.sweep.cases import SweepCase, groups_of
from prunecast.codesign.sweep.run_sweep import MOST_CASES, _parts
from prunecast.errors import BadInput
from prunecast.hardware import gpu_names

predicting = import_module("prunecast.codesign.sweep.run_sweep")
equal_importance = import_module("prunecast.codesign.sweep.equal_importance")

SMALL = {
    "gpus": ["h200-sxm", "a100-sxm4-80gb"],
    "shapes": [(256, 256, 128), (512, 256, 256)],
    "patterns": ["tile-wise:64", "2:4", "unstructured"],
    "sparsities": [0.5, 0.75],
    "kernels": ["tile-wise", "stspmm", "2:4", "csr"],
}


SCHEDULER = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")


class Counting(Executor):
    """Runs at once and counts what it was given."""

    def __init__(self) -> None:
        self.groups = 0

    def submit(self, function, /, *arguments):  # type: ignore[no-untyped-def]
        self.groups += 1
        future = Future()  # type: ignore[var-annotated]
        future.set_result(function(*arguments))
        return future


def test_every_combination_is_there_once() -> None:
    cases = expand(**SMALL)
    # per GPU and shape: dense, tile-wise by 3 kernels and csr at 2 sparsities, 2:4 by 2 kernels
    assert len(cases) == len(set(cases)) == 2 * 2 * (1 + 2 * 3 + 2 + 2)
    assert len({case.key() for case in cases}) == len(cases)


def test_csr_runs_where_nothing_else_does_unless_it_is_asked_for() -> None:
    texts = {**SMALL, "patterns": ["tile-wise:64", "unstructured", "2:4"]}
    found = {(case.pattern, case.kernel) for case in expand(**texts | {"kernels": ()})}
    assert ("unstructured", "csr") in found
    assert not found & {("tile-wise:64", "csr"), ("2:4", "csr")}
    asked = {(case.pattern, case.kernel) for case in expand(**texts | {"kernels": ("csr",)})}
    assert asked == {("dense", "dense"), *((pattern, "csr") for pattern in texts["patterns"])}
    with pytest.raises(BadInput, match="kernel"):
        expand(**texts | {"kernels": ("cusparse",)})


def test_a_result_is_what_predict_says(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cases = expand(gpus=["h200-sxm"], shapes=[(512, 256, 128)], patterns=["tile-wise:64"], sparsities=[0.75])
    weights = np.random.default_rng(0).standard_normal((512, 256), np.float32)
    table = predict(weights, gpu="h200-sxm", tokens=128, pattern="tile-wise:64", engine="model", dtype="fp16")
    expected = {p.kernel: p.seconds for p in table.predictions}
    rows = [row for group in (cases[:1], cases[1:]) for row in predict_group(group)]
    for case, row in zip(cases, rows, strict=True):
        assert row["seconds"] == pytest.approx(expected[case.kernel], rel=1e-12)


def test_a_layer_of_few_rows_is_pruned_as_predict_prunes_it() -> None:
    shape = (64, 256, 128)
    wanted = {"gpus": ["h200-sxm"], "shapes": [shape], "sparsities": [0.75], "kernels": ["stspmm"]}
    (_, case) = expand(patterns=["tile-wise:128", "tile-wise:64"], **wanted)
    weights = np.random.default_rng(0).standard_normal(shape[:2], np.float32)
    table = predict(
        weights, gpu="h200-sxm", tokens=128, pattern="tile-wise:128", kernels="stspmm", engine="model"
    )
    assert (case.pattern, case.kernel) == (table[1].pattern, table[1].kernel) == ("tile-wise:64", "stspmm")
    assert predict_group([case])[0]["seconds"] == pytest.approx(table[1].seconds, rel=1e-12)
    assert equal_importance.at_equal_importance([case], "tile-wise:128") == [case]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernels": ["stspmm", "2:4"]}, "kernel 2:4 runs none of the patterns tile-wise:64"),
        ({"dtype": "fp8"}, "dtype fp8: a sweep has no quantising of x"),
        ({"shapes": [(2**24 + 1, 1, 1)]}, "wanted sides up to 16777216"),
        ({"shapes": [(1, 1, 2**24 + 1)]}, "wanted sides up to 16777216"),
        ({"shapes": [(2**20, 1, 2**17)]}, "1048576 x 1 x 131072: .* matrices up to 68719476736"),
        ({"shapes": [(2**20, 2**17, 1)]}, "matrices up to 68719476736"),
    ],
)
def test_cases_that_say_nothing_are_refused_before_the_work(changes, words) -> None:  # type: ignore[no-untyped-def]
    wanted = {"gpus": ["h200-sxm"], "shapes": [(256, 128, 64)], "sparsities": [0.5]}
    with pytest.raises(BadInput, match=words):
        expand(**{**wanted, "patterns": ["tile-wise:64"], **changes})


def test_weights_that_are_too_large_to_be_drawn_are_a_refused_case() -> None:
    wanted = {"gpus": ["h200-sxm"], "shapes": [(2**15, 2**14, 8)], "sparsities": [0.5], "kernels": ["2:4"]}
    dense, pruned = expand(patterns=["2:4"], **wanted)
    assert predict_group([dense])[0]["seconds"] > 0.0
    assert "random weights have at most 268435456" in predict_group([pruned])[0]["error"]


@pytest.mark.parametrize("engine", ["model", "simulator"])
def test_what_a_worker_keeps_changes_no_result(engine, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Groups one after another in one worker, and each case in one that knows nothing."""
    wanted = {**SMALL, "shapes": [(256, 128, 64), (128, 256, 64)], "sparsities": [0.75]}
    cases = expand(**wanted, engine=engine)
    kept = [row for group in groups_of(cases).values() for row in predict_group(group)]
    alone = []
    for case in itertools.chain(*groups_of(cases).values()):
        for known in ("_pruned", "_by_elements", "_bundled_gpu"):
            getattr(predicting, known).cache_clear()
        equal_importance._shared_importance.cache_clear()
        alone += predict_group([case])
    assert kept == alone
    monkeypatch.setattr(equal_importance, "MOST_SHARED", 0)
    predicting._pruned.cache_clear()
    assert predict_group([cases[-1]])[0] in kept


def test_a_worker_reads_a_file_of_a_gpu_again_for_each_group(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.toml"
    text = (resources.files("prunecast.hardware") / "data" / "t4.toml").read_text()
    wanted = {"shapes": [(4096, 1024, 1024)], "patterns": ["2:4"], "sparsities": [0.5], "kernels": ["2:4"]}
    found = []
    for sms in (40, 20):
        changed = re.sub(r"(\[sm_count\]\nvalue = )40\b", rf"\g<1>{sms}", text)
        file.write_text(changed)
        dense, _ = expand(gpus=[str(file)], **wanted)
        found += predict_group([dense])
    assert found[1]["seconds"] > 1.5 * found[0]["seconds"]
    assert found[0]["key"] != found[1]["key"]


def test_large_groups_come_first_and_simulations_in_small_parts() -> None:
    wanted = {**SMALL, "gpus": gpu_names()[:5]}
    parts = {engine: list(_parts(expand(**wanted, engine=engine))) for engine in MOST_CASES}
    for engine, most in MOST_CASES.items():
        sizes = [part[0].m * part[0].k * part[0].n for part in parts[engine]]
        assert sizes == sorted(sizes, reverse=True)
        assert max(len(part) for part in parts[engine]) <= most
        assert sum(len(part) for part in parts[engine]) == len(expand(**wanted))
    assert len(parts["simulator"]) > len(parts["model"])


def test_a_rerun_computes_only_what_is_missing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cases = expand(**SMALL)
    with SweepStore(tmp_path / "r.sqlite") as store:
        first = run_sweep(cases[: len(cases) // 2], store, Counting())
    executor = Counting()
    with SweepStore(tmp_path / "r.sqlite") as store:
        second = run_sweep(cases, store, executor)
        third = run_sweep(cases, store, Counting())
        rows = store.rows()
    assert (first.computed, second.known, second.computed) == (22, 22, 22)
    assert (third.known, third.computed) == (44, 0)
    assert len(rows) == len(cases)
    assert all((row["seconds"] is None) == (row["error"] is not None) for row in rows)


def test_what_cannot_be_run_is_stored_with_its_reason(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cases = expand(
        gpus=["t4"], shapes=[(64, 64, 64)], patterns=["2:4"], sparsities=[0.5], kernels=["2:4", "csr"]
    )
    with SweepStore(tmp_path / "r.sqlite") as store:
        summary = run_sweep(cases, store, Counting())
        errors = {row["kernel"]: row["error"] for row in store.rows()}
    assert summary.refused == 1
    assert errors["2:4"]
    assert errors["csr"] is None


def test_processes_give_what_one_thread_gives(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cases = expand(**SMALL)
    with SweepStore(tmp_path / "a.sqlite") as store, open_executor(workers=2) as executor:
        run_sweep(cases, store, executor)
        found = store.rows()
    with SweepStore(tmp_path / "b.sqlite") as store:
        run_sweep(cases, store, Counting())
        assert store.rows() == found


def test_results_of_a_killed_sweep_are_kept(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A worker fails after three groups; what came before is there, and the rerun does the rest."""
    cases = expand(**SMALL)

    class Dying(Counting):
        def submit(self, function, /, *arguments):  # type: ignore[no-untyped-def]
            if self.groups == 3:
                future = Future()  # type: ignore[var-annotated]
                future.set_exception(RuntimeError("worker died"))
                return future
            return super().submit(function, *arguments)

    with SweepStore(tmp_path / "r.sqlite") as store, contextlib.suppress(RuntimeError):
        run_sweep(cases, store, Dying())
    with SweepStore(tmp_path / "r.sqlite") as store:
        kept = len(store.rows())
        summary = run_sweep(cases, store, Counting())
    assert 0 < kept < len(cases)
    assert summary.known == kept
    assert summary.computed == len(cases) - kept


@pytest.mark.slow
def test_a_dask_worker_that_is_killed_loses_nothing(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A real scheduler and two workers as processes of their own; one is killed in the middle."""
    pytest.importorskip("distributed")
    port_file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    command = "from distributed.cli.dask_{0} import main; main()".format
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", command("scheduler"), *SCHEDULER, "--scheduler-file", str(port_file)],
            **quiet,
        )
    ]
    try:
        deadline = time.monotonic() + 1800
        while not (port_file.exists() and port_file.read_text().strip()):
            assert time.monotonic() < deadline
            assert processes[0].poll() is None
            time.sleep(0.1)

        address = json.loads(port_file.read_text())["address"].removeprefix("tcp://")
        for _ in range(2):
            arguments = [
                f"tcp://{address}",
                "--nworkers",
                "1",
                "--nthreads",
                "1",
                "--no-dashboard",
                "--no-nanny",
            ]
            processes.append(subprocess.Popen([sys.executable, "-c", command("worker"), *arguments], **quiet))
        cases = expand(**{**SMALL, "sparsities": [0.5, 0.6, 0.7, 0.75, 0.8, 0.9]})
        victim = processes[1]

        def kill_midway(stage: str, done: int, total: int) -> None:
            if done * 4 > total and victim.poll() is None:
                os.kill(victim.pid, signal.SIGKILL)

        with SweepStore(tmp_path / "d.sqlite") as store, open_executor(f"dask://{address}") as executor:
            summary = run_sweep(cases, store, executor, kill_midway)
            found = store.rows()
        assert victim.wait(1800) == -signal.SIGKILL
        assert summary.computed == len(set(cases))
        with SweepStore(tmp_path / "one.sqlite") as store:
            run_sweep(cases, store, Counting())
            assert store.rows() == found
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_two_processes_may_write_one_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cases = expand(**SMALL)
    halves = [cases[::2], cases[1::2]]

    def run(part):  # type: ignore[no-untyped-def]
        with SweepStore(tmp_path / "r.sqlite") as store:
            run_sweep(part, store, Counting())

    SweepStore(tmp_path / "r.sqlite").__exit__(None, None, None)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, halves))
    with SweepStore(tmp_path / "r.sqlite") as store:
        assert len(store.rows()) == len(cases)


def test_other_files_are_refused_and_left_alone(tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = tmp_path / "text"
    text.write_text("no database" * 100)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE results (key TEXT)")
    connection.close()
    for path in (text, other, tmp_path / "nowhere" / "r.sqlite"):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(BadInput, match=r"results|SQLite"):
            SweepStore(path)
        assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"shapes": [(0, 1, 1)]}, "shape"),
        ({"gpus": ["h900"]}, "h900"),
        ({"patterns": ["tiles"]}, "tiles"),
        ({"sparsities": [1.5]}, "sparsity"),
        ({"engine": "oracle"}, "engine"),
    ],
)
def test_bad_input(changed, told) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=told):
        expand(**{**SMALL, **changed})


def test_an_executor_that_is_not_there_is_an_error_in_one_line() -> None:
    pytest.importorskip("distributed")
    for address in ("dask://127.0.0.1:9", "cluster"):
        with pytest.raises(BadInput), open_executor(address):
            pass


def test_defaults_of_the_function_are_those_of_the_command() -> None:
    def defaults(function, **other_names):  # type: ignore[no-untyped-def]
        found = inspect.signature(function).parameters.values()
        given = {other_names.get(p.name, p.name): p.default for p in found if p.default is not p.empty}
        return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}

    command = import_module("prunecast.cli.sweep").sweep
    asked = defaults(command, gpu="gpus", pattern="patterns", sparsity="sparsities")
    for function in (predicting.sweep, expand):
        given = defaults(function)
        shared = given.keys() & asked.keys()
        assert shared
        assert {name: given[name] for name in shared} == {name: asked[name] for name in shared}


def test_results_of_an_earlier_run_keep_their_keys(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The key of a case in a store that this version wrote: with another one, a rerun would predict again."""
    monkeypatch.setattr("prunecast.codesign.sweep.cases.tool_version", lambda: "0.2.0")
    sizes = {"m": 256, "k": 512, "n": 128, "dtype": "fp16", "pattern": "tile-wise:64", "sparsity": 0.5}
    run = {"kernel": "stspmm", "engine": "model", "state": "burst", "launch": "graph", "seed": 0}
    case = SweepCase(gpu="h200-sxm", **sizes, **run)
    assert case.key("1234") == "220ce3d6f68dfbd2e6d1f80bb9d4d3a3"
