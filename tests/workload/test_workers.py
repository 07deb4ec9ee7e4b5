import subprocess
import sys
import threading

import numpy as np
import pytest

from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.models import Estimate
from prunecast.patterns import element_map_from_mask
from prunecast.simulator import SimResult
from prunecast.workload.engines import Engine, Workers


def test_results_and_errors_reach_whoever_waits():
    workers = Workers(2)
    futures = [workers.submit(lambda value=value: 10 // value) for value in (1, 2, 0, 5)]
    assert [futures[i].result() for i in (0, 1, 3)] == [10, 5, 2]
    with pytest.raises(ZeroDivisionError):
        futures[2].result()


def test_no_more_than_so_many_at_once():
    workers, both_in, go = Workers(2), threading.Barrier(3), threading.Event()
    begun = []

    def wait(number):
        begun.append(number)
        both_in.wait()
        go.wait()

    for number in range(2):
        workers.submit(lambda number=number: wait(number))
    third = workers.submit(lambda: begun.append(2))
    both_in.wait()
    assert sorted(begun) == [0, 1]
    assert not third.running()
    go.set()
    third.result()
    assert sorted(begun) == [0, 1, 2]


def test_what_has_not_begun_is_cancelled():
    workers, begun, go = Workers(1), threading.Event(), threading.Event()

    def first():
        begun.set()
        go.wait()
        return "done"

    running, waiting = workers.submit(first), workers.submit(lambda: "never")
    begun.wait()
    workers.cancel()
    go.set()
    assert running.result() == "done"
    assert waiting.cancelled()


def test_the_process_ends_while_they_work():
    code = (
        "import time\n"
        "from prunecast.workload.engines import Workers\n"
        "Workers(1).submit(lambda: time.sleep(600))\n"
        "print('left')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert (done.returncode, done.stdout) == (0, "left\n")


@pytest.mark.parametrize(("tokens", "is_long"), [(1000, False), (16384, True)])
def test_long_lists_that_issue_slots_bound_take_what_a_simulation_says(tokens, is_long):
    weights = np.random.default_rng(3).standard_normal((96, 512)) * np.arange(1, 97)[:, None]
    kept = element_map_from_mask(np.abs(weights) > np.quantile(np.abs(weights), 0.8), "unstructured")
    gpu = load_gpu("h200-sxm")
    plan = fastest_plan("csr", kept, tokens, "fp16", gpu)
    quick, whole = (Engine(name="simulator", gpu=gpu, quick_lists=quick) for quick in (True, False))
    assert quick.run(plan).seconds == pytest.approx(whole.run(plan).seconds, rel=1e-3)
    assert isinstance(quick.run(plan), Estimate if is_long else SimResult)
    assert isinstance(whole.run(plan), SimResult)


def test_a_gpu_that_runs_fp32_only_is_simulated() -> None:
    """The product that the simulator compiles with has a dtype of the GPU."""
    gpu = load_gpu("gtx-1080-ti")
    plan = plan_dense(256, 256, 256, "fp32", gpu)
    assert isinstance(Engine(name="simulator", gpu=gpu).run(plan), SimResult)


def test_the_compiler_is_waited_for_before_the_first_simulation_only() -> None:
    """No stage is told as done before it has begun, and the closed form compiles nothing."""
    gpu, told = load_gpu("h200-sxm"), []
    plans = [plan_dense(128, 128, n, "fp16", gpu) for n in (64, 128)]
    for name in ("simulator", "model"):
        engine = Engine(name=name, gpu=gpu, progress=lambda *stage: told.append(stage))
        for plan in plans:
            engine.run(plan)
        engine.stop()
    assert told == [("compiling the simulator (first run only)", 0, 1), ("simulating", 0, 1)]
