"""Commands that run in parts: one part that fails says why and spoils no other."""

import argparse
import json
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import cupy as cp

from prunecast.validation.measure.sources import MICROBENCHMARKS
from prunecast.validation.measure.timing import ClockProbe


class CupyProbe(ClockProbe):
    """Compiled by CuPy, where the package's own compiler may be missing."""

    def __init__(self) -> None:
        source = (MICROBENCHMARKS / "clock_probe.cu").read_text()
        module = cp.RawModule(code=source, options=("--std=c++17",))
        self._kernel, self._hold = module.get_function("read_clocks"), module.get_function("hold_stream")
        self._sms = cp.cuda.Device().attributes["MultiProcessorCount"]
        self._readings = cp.zeros((2, self._sms, 2), cp.uint64)


def parts_parser(description: str | None, parts: Iterable[str]) -> argparse.ArgumentParser:
    """Where to write, and which parts to run, all of them unless told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(parts))
    return parser


def run_parts(parts: Mapping[str, Callable[[], Any]], wanted: str, file: Path) -> None:
    """Run those of `wanted`, a list with commas, in that order; the file is written after each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {}
    for part in wanted.split(","):
        try:
            record[part] = parts[part]()
        except Exception:
            record[part] = traceback.format_exc()
            print(record[part], flush=True)
        file.write_text(json.dumps(record))
