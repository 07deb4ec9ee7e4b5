"""The tile kernel on an H200 against cuBLAS: checked first, then timed, beside its goals.

    python -m benchmarks.tile run --out DIR [--quick]
    python -m benchmarks.tile report DIR/tile.json

Protocol: fp16, fp32 accumulation, random normal data; five large and seven smaller layers at 50, 75, 90 %.
cuBLAS and the kernel run in turn, with and without programmatic dependent launch: CUDA graphs of at most 4 ms
between rests of 30 ms, medians of 15; inputs, weights and outputs rotate over more than twice the L2. The
record has every sample, clocks read in the kernel, device, driver.
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    """Run, or print a record."""
    options = _options()
    if options.what == "report":
        from benchmarks.tile.report import print_tables

        print_tables(json.loads(options.record.read_text()))
        return 0
    from benchmarks.tile.run import run

    return run(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("report").add_argument("record", type=Path)
    run = what.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--quick", action="store_true", help="four layers")
    run.add_argument("--turns", type=int, default=15)
    run.add_argument("--seconds", type=float, default=460.0, help="start no case after this long")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
