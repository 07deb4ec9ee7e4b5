"""A sweep whose workers die, whose rows lack a sparsity, and where no process can be started."""

import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from prunecast.codesign.sweep import expand, run_sweep
from prunecast.codesign.sweep.cases import SweepStore
from prunecast.codesign.sweep.pictures import speedup_grids
from prunecast.codesign.sweep.run_sweep import open_executor
from prunecast.errors import BadInput

CASES = expand(
    gpus=["h200-sxm"], shapes=[(64, 64, 64)], patterns=["tile-wise:64"], sparsities=[0.5], kernels=[],
    dtype="fp16", engine="model", state="burst", launch="graph",
)  # fmt: skip


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(ProcessPoolExecutor):
    def submit(self, _, *arguments):
        return super().submit(die, *arguments)


def test_a_dead_worker_is_one_line(tmp_path):
    with (
        SweepStore(tmp_path / "s.sqlite") as store,
        Deadly(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(BadInput, match=r"a worker died, .* a rerun goes on"),
    ):
        run_sweep(CASES, store, pool)


WAITS = """
import os, time
from prunecast.codesign.sweep import open_executor
with open_executor(workers=1) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(1800)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_workers_end_with_a_parent_that_is_killed(number):
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True) as parent:
        worker = os.pidfd_open(int(parent.stdout.readline()))
        parent.send_signal(number)
    assert select.select([worker], [], [], 600)[0] == [worker]
    os.close(worker)


def test_without_semaphores_one_thread_does_it(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("multiprocessing.context.SpawnContext.Lock", none)
    with (
        pytest.warns(RuntimeWarning, match="no processes"),
        open_executor() as pool,
        SweepStore(tmp_path / "s.sqlite") as store,
    ):
        assert run_sweep(CASES, store, pool).computed == len(CASES)


def test_rows_without_sparsity_are_left_out_of_pictures():
    row = {"gpu": "g", "kernel": "csr", "pattern": "p", "m": 1, "k": 1, "n": 1, "seconds": 1.0}
    row |= {"dtype": "fp16", "engine": "model", "state": "burst", "launch": "graph"}
    (grid,) = speedup_grids([{**row, "sparsity": 0.5}, {**row, "sparsity": None}])
    assert grid.sparsities == (0.5,)
