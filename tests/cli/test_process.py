"""The command as a process: exit codes, streams, pipes and signals."""

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial

import pytest

from prunecast.cli import entry

PRUNECAST = [sys.executable, "-m", "prunecast"]
INTERRUPTED = """
import os, signal, sys
from prunecast.cli import main
from prunecast.cli.progress import ProgressLines
def tell(self, stage, done, total, real=ProgressLines.__call__):
    real(self, stage, done, total)
    if stage == "predicting" and done > 0 or sys.argv[1] == "predict":
        ProgressLines.__call__ = real
        os.killpg(os.getpid(), signal.SIGINT)
ProgressLines.__call__ = tell
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
"""The command which sends itself Ctrl-C, as a terminal does to all processes of a job, when it has begun."""
FAST = ["--engine", "model", "-n", "64", "--no-crossovers"]


def process(*arguments, **options):
    return subprocess.run([*PRUNECAST, *arguments], capture_output=True, text=True, timeout=1800, **options)


def test_done_missed_and_bad_input(model):
    done = process("predict", model, *FAST, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["schema_version"] == 1
    missed = process("predict", model, *FAST, "--min-speedup", "1e9")
    assert (missed.returncode, missed.stderr.count("\n")) == (1, 1)
    bad = process("predict", model, *FAST, "--gpu", "h300")
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert bad.stderr.startswith("prunecast: error: unknown GPU 'h300'")


def test_debug_shows_where_an_error_comes_from(model):
    shown = process("predict", model, "--gpu", "h300", "--debug")
    assert "Traceback" in shown.stderr
    assert "BadInput" in shown.stderr
    assert shown.returncode == 1  # Python's own, for an exception that nobody catches


def test_the_installed_command_is_the_module(tmp_path):
    script = os.path.join(os.path.dirname(sys.executable), "prunecast")
    if not os.path.exists(script):
        pytest.skip("prunecast is not installed as a command")
    installed = subprocess.run([script, "gpus"], capture_output=True, text=True, timeout=1800)
    assert installed.stdout == process("gpus").stdout


def test_a_folder_that_is_gone_is_not_the_output(capsys):
    """`os.getcwd` raises so, without a file name."""
    assert entry._report(FileNotFoundError(errno.ENOENT, "No such file or directory"), ()) == 2
    assert capsys.readouterr().err == "prunecast: error: No such file or directory: the current folder\n"


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")


@FULL
@pytest.mark.parametrize(("arguments", "code"), [(["gpus", "none"], 2), (["gpus", "t4"], 0)])
def test_the_exit_code_does_not_depend_on_who_reads_stderr(arguments, code):
    with open("/dev/full", "w") as full:
        left = subprocess.run([*PRUNECAST, *arguments], stdout=subprocess.PIPE, stderr=full, timeout=1800)
    assert (left.returncode, bool(left.stdout)) == (code, code == 0)


@FULL
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        left = subprocess.run(
            [*PRUNECAST, "gpus"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=1800
        )
    wanted = "prunecast: error: No space left on device: standard output\n"
    assert (left.returncode, left.stderr) == (2, wanted)


@pytest.mark.parametrize(("closed", "code"), [("gpus >&-", 0), ("gpus 2>&-", 0), ("gpus none 2>&-", 2)])
def test_streams_may_be_closed(closed, code):
    command = f"{sys.executable} -m prunecast {closed}"
    assert subprocess.run(command, shell=True, capture_output=True, timeout=1800).returncode == code


@pytest.mark.parametrize("arguments", [["gpus", "h200-sxm"], ["gpus", "--json"], ["--help"]])
def test_a_reader_that_leaves_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        left = subprocess.run(
            [*PRUNECAST, *arguments], stdout=out, stderr=subprocess.PIPE, text=True, timeout=1800
        )
    assert (left.returncode, left.stderr) == (0, "")


def test_a_terminal_without_unicode_is_no_error(model):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    shown = process("predict", model, *FAST, env=environment)
    assert (shown.returncode, shown.stderr) == (0, "")


def interrupted(*arguments):
    """(stdout, stderr) of a command during which Ctrl-C is pressed."""
    started = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments],
        # A job that a shell starts in the background ignores the signal, and so would all that it starts.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "PRUNECAST_PROGRESS": "0"},
        capture_output=True,
        text=True,
        timeout=1800,
        start_new_session=True,
    )
    assert started.returncode == 130, started.stderr
    assert started.stderr.splitlines()[-1] == "prunecast: interrupted"
    assert "Traceback" not in started.stderr
    return started.stdout, started.stderr


def test_ctrl_c_ends_quietly(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, err = interrupted("predict", model, "-n", str(2**21), "-o", "out.json")
    assert out == ""
    assert err.startswith("prunecast: ")
    assert not (tmp_path / "out.json").exists()


def test_ctrl_c_in_a_sweep_waits_for_no_worker(tmp_path, monkeypatch):
    """In a terminal all processes get the signal: the workers are silent, what is stored stays."""
    monkeypatch.chdir(tmp_path)
    shapes = [f"--shape={m}x2048x{n}" for m in range(2048, 6144, 256) for n in (512, 1024)]
    out, _ = interrupted("sweep", "-o", "s.sqlite", "--workers", "2", *shapes)
    assert out == ""
    with closing(sqlite3.connect("s.sqlite")) as store:
        assert 0 < store.execute("select count(*) from results").fetchone()[0] < 10 * len(shapes)
