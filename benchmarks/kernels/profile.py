"""A small table from the hardware counters: where a kernel's cycles go, one line for each launch.

    python -m benchmarks.kernels.profile -- python -m benchmarks.kernels.sanitize --run balanced
    python -m benchmarks.kernels.profile --kernel balanced --count 4 -- python anything.py

Wraps a command in ncu (Nsight Compute), which must be allowed to read counters. Clocks are left as they are.
"""

import argparse
import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["METRICS", "table"]

METRICS = {
    "us": "gpu__time_duration.sum",
    "issue %": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "fma %": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor %": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "shared %": "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "l2 %": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "dram %": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram MB": "dram__bytes.sum",
    "warps": "sm__warps_active.avg.per_cycle_active",
}
"""Column -> metric of Nsight Compute; one that this version or chip lacks stays empty."""
_SCALE = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3}
_MEGABYTES = {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1.0, "Gbyte": 1e3}


def table(report: str) -> list[str]:
    """Lines of the table from ncu's `--csv --page raw` output."""
    rows = list(csv.DictReader(io.StringIO(report[report.index('"ID"') :])))
    units, launches = rows[0], rows[1:]
    lines = [f"{'kernel':<24}" + "".join(f"{name:>11}" for name in METRICS)]
    for launch in launches:
        cells = [_cell(launch.get(metric, ""), units.get(metric, "")) for metric in METRICS.values()]
        lines.append(f"{launch['Kernel Name'][:23]:<24}" + "".join(f"{cell:>11}" for cell in cells))
    return lines


def _cell(value: str, unit: str) -> str:
    if not value:
        return "-"
    number = float(value.replace(",", "")) * _SCALE.get(unit, 1.0) * _MEGABYTES.get(unit, 1.0)
    return f"{number:.1f}" if number < 1e5 else f"{number:.3g}"


def main() -> int:
    """Profile the command behind `--`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kernel", default="", help="only kernels whose name holds this")
    parser.add_argument("--skip", type=int, default=0, help="launches to let pass first")
    parser.add_argument("--count", type=int, default=12, help="launches to profile")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not Path(ncu).exists():
        sys.exit("ncu was not found: it comes with the CUDA toolkit")
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    wanted = [
        ncu,
        "--csv",
        "--page",
        "raw",
        "--clock-control",
        "none",
        "--metrics",
        ",".join(METRICS.values()),
    ]
    wanted += ["--launch-skip", str(options.skip), "--launch-count", str(options.count)]
    wanted += ["--kernel-name", f"regex:{options.kernel}"] if options.kernel else []
    answer = subprocess.run([*wanted, *command], capture_output=True, text=True, check=False)
    if '"ID"' not in answer.stdout:
        sys.exit(f"ncu answers {answer.returncode}: {(answer.stderr or answer.stdout)[-400:]}")
    print("\n".join(table(answer.stdout)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
