"""The main job in a gigabyte of addresses, and names from files on a terminal."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WEIGHTS = Path(__file__).resolve().parents[2] / "examples" / "stdlib_lm" / "weights.safetensors"
MOST_KB = 2**19  # of a run that finds compiled loops in the cache

# VmHWM, not ru_maxrss: Linux carries the latter over from the process that started this one.
MEASURED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from prunecast.cli import main
code = main(sys.argv[1:])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
sys.exit(code)
"""


def main_job_peak_kb(folder):
    arguments = ["predict", str(WEIGHTS), "--ignore", "re:embed", "-o", "p.csv"]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stderr.split()[-1])


def test_the_main_job_needs_less_than_a_gigabyte(tmp_path):
    main_job_peak_kb(tmp_path)  # its first run may compile (0.7 GB with an empty cache), in the same gigabyte
    assert main_job_peak_kb(tmp_path) < MOST_KB


def test_names_from_files_cannot_steer_a_terminal(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    names = ["\x1b]0;title\x07a", "b\r\nprunecast: fine", "\x9b31mc", "[red]d[/]"]
    array = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)
    odd = {f"{name}.odd": np.zeros((2, 2, 2), np.float16) for name in names}
    save_file(dict.fromkeys(names, array) | odd, tmp_path / "w.safetensors")
    for command in (
        ["predict", "w.safetensors", "-n", "64", "--engine", "model"],
        ["prune", "w.safetensors", "-o", "out"],
        ["explain", "w.safetensors", "-n", "64", "--target", names[0]],
        ["predict", "w.safetensors", "--target", f"{names[0]}.odd"],
    ):
        code, out, err = run(*command)
        assert code in (0, 2)
        assert out + err
        assert all(sign == "\n" or sign.isprintable() for sign in out + err), out + err
