"""What the stamped commands share: arguments, and all cases one after the other while time is left."""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["build_or_run", "parser_of"]

Record = dict[str, Any]


def parser_of(
    description: str | None, *, seconds: float, turns: int | None = None
) -> argparse.ArgumentParser:
    """`build` or `run` in a folder.

    Parameters
    ----------
    seconds : how long a run may take unless told
    turns : samples of a case unless told; None where that cannot be told
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=seconds)
    if turns is not None:
        parser.add_argument("--turns", type=int, default=turns)
    return parser


def build_or_run(
    options: argparse.Namespace,
    *,
    build: Callable[[Path], None],
    cases: Sequence[Any],
    run: Callable[[Any, Path, Any, int], tuple[Record, np.ndarray]],
    line: Callable[[Record, np.ndarray], str],
    name: str,
) -> None:
    """What was asked for.

    Parameters
    ----------
    build : fills the folder
    run : a case with the folder on a stream, so many turns; its record and its stamps
    """
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build(folder)
        return
    run_all(
        cases,
        options.out,
        options.seconds,
        cache=folder / "cache",
        run=lambda case, stream: run(case, folder, stream, options.turns),
        line=line,
        name=name,
    )


def run_all(
    cases: Sequence[Any],
    out: Path,
    seconds: float,
    *,
    cache: Path,
    run: Callable[[Any, Any], tuple[Record, np.ndarray]],
    line: Callable[[Record, np.ndarray], str],
    name: str,
) -> None:
    """Time and trace every case; writes NAME.json and NAME.npz.

    run : a case on a stream; its record and its stamps
    """
    os.environ["PRUNECAST_CACHE"] = str(cache)
    import cupy as cp

    began = time.perf_counter()
    stream = cp.cuda.Stream(non_blocking=True)
    records: list[Record] = []
    stamps: dict[str, np.ndarray] = {}
    for case in cases:
        if time.perf_counter() - began > seconds:
            print("out of time at", case.name)
            break
        with stream:
            record, stamps[case.name] = run(case, stream)
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
        records.append(record)
        print(line(record, stamps[case.name]), flush=True)
    (out / f"{name}.json").write_text(json.dumps(records))
    np.savez_compressed(out / f"{name}.npz", **stamps)
    print(f"{time.perf_counter() - began:.0f} s")
