"""Files and functions of the package that fixed commands enter, counted with `sys.setprofile`.

Each command runs twice in its own process: the first run imports and compiles, the second is counted. What
functions keep of earlier calls (`lru_cache`) is forgotten in between. Both run in one thread and print no
progress: threads that ask for a value at once all compute it, and the counts would depend on the machine.
"""

import contextlib
import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from prunecast.cli import main as main_of_prunecast

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "prunecast"
WEIGHTS = ROOT / "examples" / "stdlib_lm" / "weights.safetensors"
ONE_LAYER = ["--target", "blocks.0.ffn.down.weight", "--pattern", "tile-wise:128", "--no-crossovers"]
ONE_LAYER += ["--kernel", "dense", "--kernel", "stspmm", "-n", "256"]
TASKS = {
    "predict, one layer, closed form": ["predict", *ONE_LAYER, "--engine", "model"],
    "predict, one layer, simulator": ["predict", *ONE_LAYER, "--engine", "simulator"],
    "explain": ["explain", "--target", "blocks.0.ffn.down.weight", "-n", "256", "--engine", "model"],
    "prune to a latency": ["prune", "--latency", "85%", "-o", "pruned.safetensors"],
}


def task_counts(task: str) -> dict[str, int]:
    """Run a task in a new process and return its counts by title."""
    command = [sys.executable, "-m", "benchmarks.house.tasks", task]
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PRUNECAST_PROGRESS": "off"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=1800
    )
    return {f"{task}: {title}": number for title, number in json.loads(done.stdout).items()}


def main() -> int:
    name, *arguments = TASKS[sys.argv[1]]
    one_thread = patch("os.cpu_count", return_value=1)
    with one_thread, tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        command = partial(main_of_prunecast, [name, str(WEIGHTS), *arguments])
        _quietly(command)
        forget_results()
        counts = counted(command)
    print(json.dumps(counts))
    return 0


def counted(run: Callable[[], int]) -> dict[str, int]:
    """Run a command and count what it enters.

    Comprehensions and lambdas count as functions. A move is a call of a function of the package from one that
    is in another file.
    """
    functions: set[CodeType] = set()
    stacks, moves = threading.local(), 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moves
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(PACKAGE)):
            return
        stack = vars(stacks).setdefault("files", [])
        if event == "return":
            stack.pop() if stack else None
            return
        moves += bool(stack) and stack[-1] != code.co_filename
        stack.append(code.co_filename)
        functions.add(code)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        _quietly(run)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {
        "files": len({code.co_filename for code in functions}),
        "functions": len(functions),
        "moves": moves,
    }


def _quietly(run: Callable[[], int]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        code = run()
    if code:
        raise RuntimeError(f"the command ended with exit code {code}: {told.getvalue()}")


def forget_results() -> None:
    """Clear what functions of the package keep of earlier calls."""
    for kept in gc.get_objects():
        # `isinstance` would follow weak proxies, among them those of objects that are gone
        if type(kept) is _lru_cache_wrapper and kept.__module__.startswith("prunecast"):
            kept.cache_clear()


if __name__ == "__main__":
    sys.exit(main())
