"""Models pruned to a latency, on an H200: does every layer, and do all together, take what was predicted?

python -m benchmarks.models run --out DIR [--models bert]
python -m benchmarks.models report DIR/models.json
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    """Run, or print a record."""
    options = _options()
    if options.what == "run":
        from benchmarks.models.run import run

        return run(options)
    from benchmarks.models.report import print_record

    print_record(json.loads(options.record.read_text()))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    run = what.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--turns", type=int, default=7)
    run.add_argument("--models", default="", help="words of names, e.g. bert; all if empty")
    what.add_parser("report").add_argument("record", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
