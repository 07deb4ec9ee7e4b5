"""The kernel for few tokens on an H200: checked, then timed in all forms beside cuBLAS and the tile kernel.

    python -m benchmarks.gpu_small_prepare build/gpu_small     # anywhere: cubins, plans, predictions
    python -m benchmarks.gpu_small --prepared build/gpu_small --out DIR

Of every case all forms are checked against float64 and looked at briefly, without rests; the fastest two, the
planner's first, the fastest without overlapping launches, the tile kernel and the dense products are then
timed in turn as in `gpu_time`: graphs, rests, all arrays rotated over more than twice the L2. `torch linear`
is the dense product of token-major B and C, as a linear layer calls it; it stands beside the best of the
others. The tile kernel is given whole groups of 8 tokens. Writes DIR/small.json.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.gpu_cases import Case, plans_of, tile_map
from benchmarks.gpu_check import Verdict
from benchmarks.gpu_small_cases import SmallCheck
from benchmarks.gpu_small_check import check_endings, check_small, reference_of
from benchmarks.gpu_small_contestants import (
    Arrays,
    Weights,
    candidates,
    case_of,
    finalists,
    mark,
    tile_cases,
    tile_kernel,
)
from benchmarks.gpu_small_layer import image_of
from benchmarks.gpu_small_report import entry_of, print_table, table_lines
from benchmarks.gpu_time import Contestant, take_turns
from benchmarks.on_gpu.dense_contestants import dense_contestants, torch_contestant
from benchmarks.on_gpu.rotation import Sets, input_sets, more_sets
from benchmarks.on_gpu.session import Session
from prunecast.kernels.small_n.configs import HEIGHTS, SmallConfig
from prunecast.plan.tile_rows import cut_rows


def main() -> int:
    """Check, time, print, write."""
    options = _options()
    os.environ["PRUNECAST_CACHE"] = str((options.prepared / "cubin").resolve())
    prepared = json.loads((options.prepared / "prepared.json").read_text())
    session = Session(options.out / "small.json", sys.argv[1:])

    def work() -> None:
        if not options.no_checks:  # no form is timed before it was right for its own case
            session.check(_checks(prepared))
        _time_all(prepared, options, session)

    done = session.run(work)
    print_table(session.record)
    return 0 if done else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--prepared", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=400.0, help="start no layer and N after this long")
    parser.add_argument("--layers", default="", help="some of them, e.g. 11008x4096,768x3072; all if empty")
    parser.add_argument("--tokens", default="", help="some of them, e.g. 1,16; all if empty")
    parser.add_argument("--densities", default="", help="some of them, e.g. 0.25; all if empty")
    parser.add_argument("--no-checks", action="store_true")
    return parser.parse_args()


def _checks(prepared: dict[str, Any]) -> dict[str, Callable[[], list[Verdict]]]:
    forms = [SmallCheck(c["dtype"], c["n"], SmallConfig(*c["form"])) for c in prepared["checks"]]
    return {"forms": lambda: check_small(forms), "endings": check_endings}


def _time_all(prepared: dict[str, Any], options: argparse.Namespace, session: Session) -> None:
    began = time.perf_counter()
    stream = cp.cuda.Stream(non_blocking=True)
    cases = [case for case in prepared["cases"] if _wanted(case, options)]
    plans = plans_of(tile_cases(cases), options.prepared / "plans.npz")
    for layer in dict.fromkeys((case["m"], case["k"]) for case in cases):
        own = [case for case in cases if (case["m"], case["k"]) == layer]
        with stream:
            bits = input_sets(*layer, 1)[0][0].view(cp.uint16)
            weights = {d: _weights(layer, d, bits) for d in dict.fromkeys(case["density"] for case in own)}
            for n in dict.fromkeys(case["n"] for case in own):
                if time.perf_counter() - began > options.seconds:
                    print(f"out of time before {layer}, {n} tokens")
                    return
                now = [case for case in own if case["n"] == n]
                entries = _time_tokens(now, weights, bits, plans, stream, options.turns)
                session.record["cases"] += entries
                took = f"{time.perf_counter() - began:.0f} s"
                print("\n".join([took, *table_lines({"cases": entries})[1:]]), flush=True)
                session.save()
        del weights, bits
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()


def _wanted(case: dict[str, Any], options: argparse.Namespace) -> bool:
    given = {
        f"{case['m']}x{case['k']}": options.layers,
        str(case["n"]): options.tokens,
        f"{case['density']:g}": options.densities,
    }
    return all(not words or word in words.split(",") for word, words in given.items())


def _weights(layer: tuple[int, int], density: float, bits: Any) -> Weights:
    whole = tile_map(Case(*layer, 1, density))
    tiles = {height: cut_rows(whole, height) for height in HEIGHTS}
    images = {height: image_of(tiles[height], bits, height) for height in HEIGHTS}
    exact = bits.view(cp.float16).astype(cp.float64) * cp.asarray(whole.mask())
    return Weights(tiles, images, exact, int(whole.kept_per_tile.max()))


def _time_tokens(
    cases: list[dict[str, Any]],
    weights: dict[float, Weights],
    bits: Any,
    plans: dict[str, Any],
    stream: Any,
    turns: int,
) -> list[dict[str, Any]]:
    """All densities of a layer and a number of tokens with its dense products, in turn."""
    sets = input_sets(*case_of(cases[0])[:3])
    dense = [*dense_contestants(stream, sets), *_linear(stream, sets)]
    best: list[Contestant] = []
    looked: list[list[dict[str, Any]]] = []
    most = max(len(image.sets) for one in weights.values() for image in one.images.values())
    arrays = Arrays(*more_sets(sets, max(most, len(sets))))
    for case in cases:
        own = weights[case["density"]]
        reference = reference_of(own.exact, arrays.bs[0], "fp16", own.kept)
        right = candidates(case, own, arrays, reference, stream)
        looked.append([*(c.record for c in right)])
        best += finalists(case, right, arrays, stream)
        best += tile_kernel(case, plans, bits, arrays, reference, stream)
    samples = take_turns(stream, [*dense, *best], turns)
    us = {name: sample.median * 1e6 for name, sample in samples.items()}
    found = []
    for case, forms in zip(cases, looked, strict=True):
        entry = entry_of(case, forms, _named_for(case, us))
        entry["seconds"] = _named_for(case, {name: sample.seconds for name, sample in samples.items()})
        clocks = {name: float(np.median(s.clock_mhz)) for name, s in samples.items() if s.clock_mhz}
        found.append({**entry, "clock_mhz": _named_for(case, clocks)})
    return found


def _named_for(case: dict[str, Any], by_name: dict[str, Any]) -> dict[str, Any]:
    """Those of the case without its mark, and the dense ones."""
    first = mark(case)
    own = {name.removeprefix(first): value for name, value in by_name.items() if name.startswith(first)}
    return {**{name: value for name, value in by_name.items() if "|" not in name}, **own}


def _linear(stream: Any, sets: Sets) -> list[Contestant]:
    """C (N, M) of B (N, K), as torch's linear layers call the library."""
    turned = [
        (cp.ascontiguousarray(b.T), a.T, cp.empty((b.shape[1], a.shape[0]), a.dtype)) for a, b, _ in sets
    ]
    try:
        return [torch_contestant(stream, turned)._replace(name="linear")]
    except Exception as reason:
        print(f"torch linear left out: {reason}")
        return []


if __name__ == "__main__":
    sys.exit(main())
