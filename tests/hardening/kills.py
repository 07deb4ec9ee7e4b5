"""Kills commands at moments drawn at random: python -m tests.hardening.kills --kills 50

After each `kill -9` every output must be whole or absent, and in the end one more run of each command must
complete and leave nothing of the killed ones behind.
"""

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file

__all__ = ["COMMANDS", "kill_all"]


class Command(NamedTuple):
    """What is run, and what tells whether its output is whole."""

    words: tuple[str, ...]
    output: str
    check: Callable[[Path], object]


def _folder(out: Path) -> None:
    json.loads((out / "recipe.json").read_text())
    assert load_file(out / "weights.safetensors")


def _database(file: Path) -> None:
    with sqlite3.connect(file) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _page(file: Path) -> None:
    assert file.read_text().rstrip().endswith("</html>")


def _toml(file: Path) -> None:
    tomllib.loads(file.read_text())


def _json(file: Path) -> None:
    json.loads(file.read_text())


FAST = ("--engine", "model", "-n", "64")
SWEPT = tuple(word for share in range(50, 95, 5) for word in ("--sparsity", f"0.{share}"))
COMMANDS = {
    "prune": Command(("prune", "w.safetensors", "-o", "out"), "out", _folder),
    "prune to a time": Command(
        ("prune", "w.safetensors", "--latency", "100%", *FAST, "-o", "fast"), "fast", _folder
    ),
    "sweep": Command(("sweep", "-o", "s.sqlite", "--shape", "256x256x64", *SWEPT), "s.sqlite", _database),
    "search": Command(
        ("search", "w.safetensors", "--latency", "100%", *FAST, "--trials", "4", "--storage", "t.sqlite"),
        "t.sqlite",
        _database,
    ),
    "report": Command(("report", "w.safetensors", *FAST, "-o", "r.html"), "r.html", _page),
    "validate": Command(
        (
            *("validate", "--replay", "bundled", "--part", "1/400", "--engine", "model"),
            *("--report", "v.md", "--intervals", "v.toml"),
        ),
        "v.toml",
        _toml,
    ),
    "predict": Command(("predict", "w.safetensors", *FAST, "-o", "p.json"), "p.json", _json),
}


def kill_all(folder: Path, kills: int, seed: int = 0, names: Sequence[str] = tuple(COMMANDS)) -> list[str]:
    """What was not whole, or did not complete, or stayed behind."""
    draw, faults = random.Random(seed), []
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)
    save_file({"a": weights, "b": weights[:128]}, folder / "w.safetensors")
    takes = {name: _seconds(folder, COMMANDS[name]) for name in names}
    for number in range(kills):
        name = names[number % len(names)]
        command = COMMANDS[name]
        _kill(folder, command, draw.uniform(0.3, 1.0) * takes[name])
        faults += [f"{name}, kill {number}: {fault}" for fault in _broken(folder, command)]
    for name in names:
        ended = _start(folder, COMMANDS[name]).wait()
        faults += [f"{name}: a rerun ended with {ended}"] * bool(ended)
        faults += [f"{name}: {fault}" for fault in _broken(folder, COMMANDS[name])]
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
    return faults + [f"left behind: {name}" for name in left]


def _start(folder: Path, command: Command) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "prunecast", *command.words, "--quiet"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True)


def _seconds(folder: Path, command: Command) -> float:
    """How long a whole run takes."""
    begun = time.monotonic()
    _start(folder, command).wait()
    return time.monotonic() - begun


def _kill(folder: Path, command: Command, after_s: float) -> None:
    process = _start(folder, command)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()


def _broken(folder: Path, command: Command) -> list[str]:
    output = folder / command.output
    if not output.exists():
        return []
    try:
        command.check(output)
    except Exception as error:
        return [f"{command.output} is not whole: {error!r:.200}"]
    return []


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(COMMANDS), action="append")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = kill_all(Path(folder), asked.kills, asked.seed, tuple(asked.only or COMMANDS))
    print("\n".join(faults) or "every output was whole or absent, every rerun completed")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(_main())
