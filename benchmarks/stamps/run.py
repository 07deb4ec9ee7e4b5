"""What the stamped commands share: arguments, and all cases one after the other while time is left."""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["parser_of", "run_all"]

Record = dict[str, Any]


def parser_of(description: str | None, *, seconds: float) -> argparse.ArgumentParser:
    """`build` or `run` in a folder; `seconds` is how long a run may take unless told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=seconds)
    return parser


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
