"""Clock stamps inside the tile and the sparse kernel: when their launches start, wait, multiply and end.

    python -m benchmarks.gpu_trace build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_trace run FOLDER --out DIR  DIR/trace.npz, DIR/trace.json

`--suite` takes *fit* cases of the suite instead of products of equal tiles, `--short` those of short tiles,
`--waves` those of many short blocks, `--cut` those of one wave, most of them cut.

The sources are those of the package with stamps written in, so that the kernels themselves stay as they are.
Every case is timed with and without them, launches overlapping, inputs rotated over twice the L2. What the
stamps are called is in `stamps/trace_patches.py`.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.own_kernels import build_beside, build_own, compile_own, defines_of, entry_of, source_of
from benchmarks.stamps.run import build_or_run, parser_of
from benchmarks.stamps.sources import compile_from, patched_sources
from benchmarks.stamps.trace_cases import CUT, SHORT, SUITE, WAVES, Traced, cases, plan_of, suite_cases
from benchmarks.stamps.trace_patches import MACRO, PATCHES, STAMPS, WORDS
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.forms import ARCH

LAUNCHES = 12
"""That follow one another at the end of a sample, all of whose stamps are kept."""


def _traced_name(plan: KernelPlan) -> str:
    kernel = "sparse" if plan.inner is not None else "tile"
    return f"traced-{kernel}-{plan.shape.block_m}x{plan.shape.block_n}-{plan.cluster}.cubin"


def build_all(folder: Path, traced: list[Traced]) -> None:
    """Compile every form with stamps into FOLDER, and without into its cache."""
    os.environ["PRUNECAST_CACHE"] = str(folder / "cache")
    patched = patched_sources(folder / "sources", PATCHES, MACRO)
    done = set()
    build_beside()
    for case in traced:
        plan = plan_of(case)
        if _traced_name(plan) in done:
            continue
        done.add(_traced_name(plan))
        build_own(plan)
        kernel = compile_from(patched, source_of(plan), ARCH, defines_of(plan))
        shutil.copy(kernel.cubin, folder / _traced_name(plan))
        print(_traced_name(plan), kernel.registers, kernel.spill_bytes)


def _run(case: Traced, folder: Path, stream: Any, turns: int) -> tuple[dict[str, Any], np.ndarray]:
    from benchmarks.stamps.timing import random_weights, record_of, rotating_arrays, time_stamped
    from prunecast.kernels.cuda.layer_operator import load_kernel

    plan = plan_of(case)
    first = compile_own(plan, random_weights(plan))
    traced = load_kernel(folder / _traced_name(plan), entry_of(plan), plan.resources.shared_bytes)
    arrays = rotating_arrays(plan, fewest=LAUNCHES)
    timed = time_stamped(stream, first, traced, arrays, words=WORDS, launches=LAUNCHES, turns=turns)
    return {**record_of(case, plan, timed), "steps": int(plan.steps_per_item.min())}, timed.stamps


def _line(record: dict[str, Any], trace: np.ndarray) -> str:
    """Of the last launch: cycles of a block from its entry, and of launches from end to end."""
    at, t = STAMPS, trace[-1]
    last_end = trace[-2][:, at["end_ns"]].max()

    def since(name: str, base: str) -> str:
        d = t[:, at[name]] - t[:, at[base]]
        return f"{int(d.mean())}"

    steps = record["steps"]
    ns = [int((t[:, at[n]] - last_end).mean()) for n in ("entry_ns", "may_read_ns")]
    ns.append(int(t[:, at["end_ns"]].max() - last_end))
    parts = [since("columns", "entry"), since("may_read", "entry"), since("full", "may_read")]
    stage = t[:, at["full"] + min(steps, 16) - 1] - t[:, at["full"]]
    parts += [f"{int(stage.mean() / max(min(steps, 16) - 1, 1))}"]
    parts += [since("multiplied", "may_read"), since("stored", "multiplied"), since("end", "multiplied")]
    name, us, mhz = f"{record['name']:38s}", record["us"], record["mhz"]
    return (
        f"{name} {us:6.2f} us {record['traced_us']:6.2f} traced {mhz:5.0f} MHz {us * mhz:7.0f} cycles"
        f" | ns after last end: entry, read, end {ns}"
        f" | columns may_read full step mult stored end {' '.join(parts)}"
    )


def main() -> None:
    """Build or run."""
    parser = parser_of(__doc__, seconds=70.0, turns=5)
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--waves", action="store_true")
    parser.add_argument("--cut", action="store_true")
    options = parser.parse_args()
    asked = [(options.suite, SUITE), (options.short, SHORT), (options.waves, WAVES), (options.cut, CUT)]
    traced = next((suite_cases(suite) for wanted, suite in asked if wanted), cases())
    build_or_run(
        options,
        build=lambda folder: build_all(folder, traced),
        cases=traced,
        run=_run,
        line=_line,
        name="trace",
    )


if __name__ == "__main__":
    main()
