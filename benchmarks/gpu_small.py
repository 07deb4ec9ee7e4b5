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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.gpu import _dense_contestants, _device, _input_sets, _more
from benchmarks.gpu_cases import Case, plans_of, tile_map
from benchmarks.gpu_check import Verdict
from benchmarks.gpu_small_cases import SmallCheck, padded, timed_plan
from benchmarks.gpu_small_check import Reference, check_endings, check_small, excess_of, reference_of
from benchmarks.gpu_small_layer import Image, image_of, operators_of, sets_to_rotate
from benchmarks.gpu_small_report import entry_of, print_table, table_lines
from benchmarks.gpu_time import Contestant, _time_replays, take_turns, torch_contestant
from prunecast.kernels.cuda.operator import compile
from prunecast.kernels.small_n_forms import HEIGHTS, SmallForm
from prunecast.kernels.tile_rows import cut_rows
from prunecast.patterns import TileMap

Sets = list[tuple[Any, Any, Any]]
LAUNCHES = 200
LOOKS = 4
"""At every form, the first of which warms up."""
FINALISTS = 2


class Weights(NamedTuple):
    """One density of a layer on the device."""

    tiles: dict[int, TileMap]
    """By height of blocks."""
    images: dict[int, Image]
    exact: Any
    """(M, K) float64, zero where nothing is kept."""
    kept: int


class Candidate(NamedTuple):
    """A form that was right."""

    record: dict[str, Any]
    contestant: Contestant
    operators: list[Any]


class Arrays(NamedTuple):
    """B and C in rotation."""

    bs: list[Any]
    cs: list[Any]


def main() -> int:
    """Check, time, print, write."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["PRUNECAST_CACHE"] = str((options.prepared / "cubin").resolve())
    prepared = json.loads((options.prepared / "prepared.json").read_text())
    record: dict[str, Any] = {"device": _device(), "arguments": sys.argv[1:], "checks": [], "cases": []}
    try:
        if not options.no_checks:
            _check_all(prepared, record)
        _time_all(prepared, options, record)
    except Exception:
        record["stopped"] = traceback.format_exc()
        traceback.print_exc()
    _save(record, options.out)
    print_table(record)
    return 1 if "stopped" in record else 0


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


def _save(record: dict[str, Any], out: Path) -> None:
    (out / "small.json").write_text(json.dumps(record, indent=1))


def _check_all(prepared: dict[str, Any], record: dict[str, Any]) -> None:
    """Results of wrong forms do not stop the run: no form is timed before it was right for its own case."""
    began = time.perf_counter()
    checks = [SmallCheck(c["dtype"], c["n"], SmallForm(*c["form"])) for c in prepared["checks"]]
    verdicts: list[Verdict] = [*check_small(checks), *check_endings()]
    wrong = [v for v in verdicts if not v.passes]
    seconds = time.perf_counter() - began
    print(f"checked {len(verdicts)}, wrong {len(wrong)}, {seconds:.1f} s", flush=True)
    for v in wrong[:20]:
        print(f"  WRONG {v.name}: excess {v.excess:.3g}, repeats {v.repeats}; {v.detail}", flush=True)
    record["checks"] = [{**v._asdict(), "passes": v.passes} for v in verdicts]


def _time_all(prepared: dict[str, Any], options: argparse.Namespace, record: dict[str, Any]) -> None:
    began = time.perf_counter()
    stream = cp.cuda.Stream(non_blocking=True)
    cases = [case for case in prepared["cases"] if _wanted(case, options)]
    plans = plans_of(_tile_cases(cases), options.prepared / "plans.npz")
    for layer in dict.fromkeys((case["m"], case["k"]) for case in cases):
        own = [case for case in cases if (case["m"], case["k"]) == layer]
        with stream:
            bits = _input_sets(Case(*layer, 1, 1.0))[0][0].view(cp.uint16)
            weights = {d: _weights(layer, d, bits) for d in dict.fromkeys(case["density"] for case in own)}
            for n in dict.fromkeys(case["n"] for case in own):
                if time.perf_counter() - began > options.seconds:
                    print(f"out of time before {layer}, {n} tokens")
                    return
                now = [case for case in own if case["n"] == n]
                entries = _time_tokens(now, weights, bits, plans, stream, options.turns)
                record["cases"] += entries
                took = f"{time.perf_counter() - began:.0f} s"
                print("\n".join([took, *table_lines({"cases": entries})[1:]]), flush=True)
                _save(record, options.out)
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


def _case_of(case: dict[str, Any]) -> Case:
    return Case(case["m"], case["k"], case["n"], case["density"])


def _tile_cases(cases: list[dict[str, Any]]) -> list[Case]:
    """As the tile kernel is given them."""
    return [_case_of(case)._replace(n=padded(case["n"])) for case in cases]


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
    sets = _input_sets(_case_of(cases[0]))
    dense = [*_dense_contestants(stream, sets), *_linear(stream, sets)]
    finalists: list[Contestant] = []
    looked: list[list[dict[str, Any]]] = []
    most = max(len(image.sets) for one in weights.values() for image in one.images.values())
    arrays = Arrays(*_more(sets, max(most, len(sets))))
    for case in cases:
        own = weights[case["density"]]
        reference = reference_of(own.exact, arrays.bs[0], "fp16", own.kept)
        candidates = _candidates(case, own, arrays, reference, stream)
        looked.append([*(c.record for c in candidates)])
        finalists += _finalists(case, candidates, arrays, stream)
        finalists += _tile_kernel(case, plans, bits, arrays, reference, stream)
    samples = take_turns(stream, [*dense, *finalists], turns)
    us = {name: sample.median * 1e6 for name, sample in samples.items()}
    found = []
    for case, forms in zip(cases, looked, strict=True):
        entry = entry_of(case, forms, _named_for(case, us))
        entry["seconds"] = _named_for(case, {name: sample.seconds for name, sample in samples.items()})
        clocks = {name: float(np.median(s.clock_mhz)) for name, s in samples.items() if s.clock_mhz}
        found.append({**entry, "clock_mhz": _named_for(case, clocks)})
    return found


def _mark(case: dict[str, Any]) -> str:
    """Before the names of a case's contestants; dense ones have none."""
    return f"{case['density']:g}|"


def _named_for(case: dict[str, Any], by_name: dict[str, Any]) -> dict[str, Any]:
    """Those of the case without its mark, and the dense ones."""
    mark = _mark(case)
    own = {name.removeprefix(mark): value for name, value in by_name.items() if name.startswith(mark)}
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


def _candidates(
    case: dict[str, Any], weights: Weights, arrays: Arrays, reference: Reference, stream: Any
) -> list[Candidate]:
    """All forms that are right, with the time of a brief look."""
    found = []
    for given in case["forms"]:
        form = SmallForm(*given["form"])
        image = weights.images[form.block_m]
        operators = operators_of(timed_plan(weights.tiles[form.block_m], case["n"], form), image)
        arrays.cs[0].fill(cp.nan)
        operators[0](arrays.bs[0], out=arrays.cs[0])
        worst = float(excess_of(arrays.cs[0], reference, "fp16").max())
        if not worst <= 1.0:
            print(f"  WRONG {_case_of(case).name} {given['name']}: excess {worst:.3g}", flush=True)
            continue
        record = {**given, "excess": worst, "bytes": _bytes(case, image)}
        name = f"{_mark(case)}small {given['name']}"
        found.append(Candidate(record, _rotating(name, operators, arrays, stream), operators))
    _look(found, stream)
    return found


def _bytes(case: dict[str, Any], image: Image) -> int:
    """That must come from memory: weights, their columns, B; and C."""
    weights, columns = image.sets[0]
    return int(weights.nbytes + columns.nbytes + 2 * case["n"] * (case["m"] + case["k"]))


def _look(candidates: list[Candidate], stream: Any) -> None:
    """Add `screen_us`, the median of a few graphs without rests, to every record."""
    looks: list[list[float]] = [[] for _ in candidates]
    for _ in range(LOOKS):
        for i, candidate in enumerate(candidates):
            one = candidate.contestant
            looks[i].append(_time_replays(stream, one, 1) / one.launches * 1e6)
    for candidate, us in zip(candidates, looks, strict=True):
        candidate.record["screen_us"] = float(np.median(us[1:]))


def _finalists(
    case: dict[str, Any], candidates: list[Candidate], arrays: Arrays, stream: Any
) -> list[Contestant]:
    """The fastest, the planner's first, and the fastest without overlapping launches."""
    if not candidates:
        return []
    ordered = sorted(candidates, key=lambda c: c.record["screen_us"])
    chosen = ordered[:FINALISTS]
    first = [c for c in candidates if c.record["name"] == case["forms"][0]["name"] and c not in chosen]
    best = ordered[0]
    alone = f"{_mark(case)}no-pdl {best.record['name']}"
    plain = _rotating(alone, best.operators, arrays, stream, overlap=False)
    return [*(c.contestant for c in [*chosen, *first]), plain]


def _tile_kernel(
    case: dict[str, Any],
    plans: dict[str, Any],
    bits: Any,
    arrays: Arrays,
    reference: Reference,
    stream: Any,
) -> list[Contestant]:
    """The tile kernel on the same B, with tokens of zeros where it takes no fewer."""
    (given,) = _tile_cases([case])
    operator = compile(plans[given.name], cp.asnumpy(bits.view(cp.float16)))
    images = operator._images
    count = sets_to_rotate(images.weights.nbytes + images.columns.nbytes)
    operators = [operator, *(operator.copy() for _ in range(count - 1))]
    own = _padded_arrays(arrays, case["n"], count)
    operator(own.bs[0], out=own.cs[0])
    worst = float(excess_of(own.cs[0][:, : case["n"]], reference, "fp16").max())
    if not worst <= 1.0:
        print(f"  WRONG tile kernel {given.name}: excess {worst:.3g}", flush=True)
        return []
    return [_rotating(f"{_mark(case)}tile", operators, own, stream)]


def _padded_arrays(arrays: Arrays, n: int, count: int) -> Arrays:
    """B and C of whole groups of tokens in `count` sets."""
    found = Arrays([], [])
    for i in range(count):
        b, c = arrays.bs[i % len(arrays.bs)], arrays.cs[0]
        wide = cp.zeros((b.shape[0], padded(n)), b.dtype)
        wide[:, :n] = b
        found.bs.append(wide)
        found.cs.append(cp.full((c.shape[0], padded(n)), cp.nan, c.dtype))
    return found


def _rotating(
    name: str, operators: list[Any], arrays: Arrays, stream: Any, *, overlap: bool = True
) -> Contestant:
    """A graph of whole rounds through all operators, each with a B and a C of its own."""
    count = len(operators)
    launches = count * max(round(LAUNCHES / count), 1)
    run = _launcher(operators, arrays, overlap=overlap)
    for i in range(count):
        run(i)
    stream.begin_capture()
    for i in range(launches):
        run(i % count)
    graph = stream.end_capture()
    return Contestant(name, lambda: graph.launch(stream), launches, operators[0].clock, run)


def _launcher(operators: list[Any], arrays: Arrays, *, overlap: bool) -> Callable[[int], object]:
    def run(i: int) -> object:
        operators[i].overlap = overlap
        return operators[i](arrays.bs[i], out=arrays.cs[i])

    return run


if __name__ == "__main__":
    sys.exit(main())
