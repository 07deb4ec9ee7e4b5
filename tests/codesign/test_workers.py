import subprocess
import sys
import threading

import pytest

from prunecast.codesign.engines import Workers


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
        "from prunecast.codesign.engines import Workers\n"
        "Workers(1).submit(lambda: time.sleep(600))\n"
        "print('left')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1800)
    assert (done.returncode, done.stdout) == (0, "left\n")
