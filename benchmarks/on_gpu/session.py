"""A record of checks and times, written again and again, so that what was measured outlives a failure."""

import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.on_gpu.check import Verdict

MOST_SHOWN = 12
"""Wrong results of a group."""


def device() -> dict[str, str]:
    """What a record says of the GPU, the commit and the versions."""
    query = "name,driver_version,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu"
    answer = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "nvidia-smi": answer.stdout.strip(),
        "commit": commit.stdout.strip(),
        "cupy": cp.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
        "cuda": str(cp.cuda.runtime.runtimeGetVersion()),
    }


class Session:
    """One run of a command.

    Parameters
    ----------
    file : where the record goes
    arguments : what the command was told
    """

    def __init__(self, file: Path, arguments: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file
        self.record: dict[str, Any] = {
            "device": device(),
            "arguments": arguments,
            "checks": [],
            "cases": [],
        }

    def save(self) -> None:
        """Write what there is."""
        self._file.write_text(json.dumps(self.record, indent=1))

    def run(self, work: Callable[[], None]) -> bool:
        """Whether it went through; what stopped it stands in the record, which is written either way."""
        try:
            work()
        except Exception:
            self.record["stopped"] = traceback.format_exc()
            traceback.print_exc()
        self.save()
        return "stopped" not in self.record

    def check(self, groups: Mapping[str, Callable[[], Iterable[Verdict]]], *, first: str = "") -> bool:
        """Whether all results are right; those of wrong ones are shown.

        Parameters
        ----------
        groups : checks by name, in order
        first : a group without which the others are not run: a build that traps where others would hang
        """
        verdicts: list[Verdict] = []
        for name, group in groups.items():
            began = time.perf_counter()
            found = list(group())
            verdicts += found
            self.record["checks"] = [{**v._asdict(), "passes": v.passes} for v in verdicts]
            _show(name, found, time.perf_counter() - began)
            if name == first and not all(v.passes for v in found):
                break
        self.save()
        return all(v.passes for v in verdicts)

    def time_layers(
        self, layers: Iterable[Any], seconds: float, timed: Callable[[Any, Any], list[dict[str, Any]]]
    ) -> None:
        """Cases of each layer on a stream of its own, while time is left.

        Parameters
        ----------
        seconds : after which no layer is begun
        timed : a layer on a stream; its entries
        """
        began = time.perf_counter()
        stream = cp.cuda.Stream(non_blocking=True)
        for layer in layers:
            if time.perf_counter() - began > seconds:
                print(f"out of time before {layer}")
                return
            with stream:
                self.record["cases"] += timed(layer, stream)
            stream.synchronize()
            cp.get_default_memory_pool().free_all_blocks()
            self.save()
            print(f"{layer}: {time.perf_counter() - began:.0f} s", flush=True)


def _show(name: str, found: list[Verdict], seconds: float) -> None:
    wrong = [v for v in found if not v.passes]
    print(f"{name}: checked {len(found)}, wrong {len(wrong)}, {seconds:.1f} s", flush=True)
    for v in wrong[:MOST_SHOWN]:
        what = f"excess {v.excess:.3g}, {v.wrong_tiles} tiles, repeats {v.repeats}"
        print(f"  WRONG {v.name}: {what}; {v.detail}", flush=True)
