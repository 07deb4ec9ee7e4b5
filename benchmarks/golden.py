"""What this version predicts for a sample of the recorded rows, beside what an earlier version predicted.

`python -m benchmarks.golden FILE` compares with FILE; `--record` writes it. Every `--every`-th row of each
kernel is taken, in the order of a hash of its name, so that a sample is the same on every machine.
"""

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.validation.judged import Judged, judge_rows
from prunecast.validation.records import Measurement, read_runs
from prunecast.validation.validate import bundled_records, merge_rows

ENGINES = ("simulator", "model")


def main() -> int:
    options = _options()
    rows = sample(options.every)
    engines = ("model",) if options.model else ENGINES
    judged = judge_rows(rows, load_gpu("h200-sxm"), engines=engines)
    found = {row.measured.key.text: _entry(row) for row in judged}
    if options.record:
        options.file.write_text(json.dumps(found, indent=0), encoding="utf-8")
        return 0
    return _compare(json.loads(options.file.read_text(encoding="utf-8")), found, engines)


def sample(every: int, use: str | None = None) -> list[Measurement]:
    """Every so many usable rows of each kernel, of one use or of both (`fit`, `judge`)."""
    runs = [run for path in bundled_records() for run in read_runs(path)]
    rows = [row for row in merge_rows(runs) if row.usable]
    by_kernel: dict[str, list[Measurement]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: hashlib.sha256(row.key.text.encode()).digest()):
        if use in (None, row.case.use):
            by_kernel[row.kernel].append(row)
    taken = [row for own in by_kernel.values() for row in own[::every]]
    return sorted(taken, key=lambda row: (row.case.m, row.case.k, row.case.pattern, row.case.seed))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--record", action="store_true", help="write FILE instead of comparing with it")
    parser.add_argument("--every", type=int, default=10, help="take every so many rows of a kernel")
    parser.add_argument("--model", action="store_true", help="closed form only")
    return parser.parse_args()


def _entry(row: Judged) -> dict[str, Any]:
    return {
        "kernel": row.measured.kernel,
        "measured": row.measured.seconds,
        "same_plan": row.same_plan,
        **{engine: one.seconds for engine, one in row.predicted.items()},
    }


def _compare(old: dict[str, Any], new: dict[str, Any], engines: tuple[str, ...]) -> int:
    lost = [key for key in new if key not in old]
    changed = 0
    print(f"{'kernel':14}{'engine':11}{'rows':>5}{'MAPE old':>10}{'new':>8}{'changed':>9}{'most':>8}")
    for kernel in sorted({entry["kernel"] for entry in new.values()}):
        keys = [k for k, entry in new.items() if entry["kernel"] == kernel and k in old]
        for engine in engines:
            pairs = [(old[k].get(engine), new[k].get(engine), new[k]["measured"]) for k in keys]
            both = np.array([pair for pair in pairs if pair[0] and pair[1]], np.float64).reshape(-1, 3)
            change = np.abs(both[:, 1] / both[:, 0] - 1.0)
            mape = [100 * float(np.mean(np.abs(both[:, i] / both[:, 2] - 1.0))) for i in (0, 1)]
            moved = int((change > 1e-9).sum())
            changed += moved
            most = 100 * float(change.max(initial=0.0))
            print(f"{kernel:14}{engine:11}{len(both):5}{mape[0]:10.2f}{mape[1]:8.2f}{moved:9}{most:7.1f}%")
    other = [k for k, entry in new.items() if k in old and entry["same_plan"] != old[k]["same_plan"]]
    print(
        f"{changed} predictions changed, {len(other)} rows of which the plan is another, {len(lost)} new rows"
    )
    for key in other[:10]:
        print(f"  another plan: {key}")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
