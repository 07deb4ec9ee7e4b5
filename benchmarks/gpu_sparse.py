"""2:4 on an H200, whole matrices and inside tiles (TVW), against cuBLAS: checked first, then timed.

    python -m benchmarks.gpu_sparse --out DIR [--quick]

Protocol as of `benchmarks.gpu`. TVW: tiles of 256 rows (`--height`) keep random columns, half or a quarter of
them, and every row two random ones of four neighbours in its tile's list. Plain 2:4: the same without tiles,
beside cuSPARSELt as torch calls it. Writes DIR/gpu_sparse.json.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.goals import Goal, print_goal
from benchmarks.gpu_cases import GPU, LARGE, LAYERS
from benchmarks.gpu_check import Verdict, check_kept, ragged_map, random_inputs
from benchmarks.gpu_time import Contestant, Sample, take_turns
from benchmarks.on_gpu.dense_contestants import dense_contestants
from benchmarks.on_gpu.rotation import Sets, input_sets, operator_contestant
from benchmarks.on_gpu.session import Session
from benchmarks.tile_maps import equal_tiles, two_of_four_in
from prunecast.kernels import KernelPlan, plan_sparse_tensor
from prunecast.kernels.cuda.sparse.operator import compile_sparse
from prunecast.kernels.tile.choose import candidates
from prunecast.kernels.tile.splitting import item_cost, item_cycles
from prunecast.kernels.tile.tile_plan import demand_of, items_of, resident_blocks, tile_plan
from prunecast.kernels.tile.wgmma_configs import wgmma_configs
from prunecast.patterns.tiling import dense_tile_map
from prunecast.plan.order import assign_hardware, assign_longest_first
from prunecast.plan.tile_rows import cut_rows

FORMS = ((256, 128), (256, 64), (128, 256), (128, 128), (128, 64))
GOALS = {0.25: (2.8, 2.2), 0.125: (5.0, 3.5)}


class Case(NamedTuple):
    """One product."""

    m: int
    k: int
    n: int
    density: float
    """0.5 is plain 2:4; below, tiles keep twice as many columns."""

    @property
    def layer(self) -> str:
        """M x K x N."""
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def name(self) -> str:
        """Unique among the cases."""
        return f"{self.layer} d={self.density:g}"


def plan_of_case(case: Case, height: int, form: tuple[int, int] | None = None) -> KernelPlan:
    """By the planner, or with a form of the kernel that it need not have chosen."""
    if case.density == 0.5:
        tiles, given = dense_tile_map(case.m, case.k, case.m), None
    else:
        tiles = given = equal_tiles(case.m, case.k, round(2 * case.density * case.k), height)
    elements = two_of_four_in(tiles)
    if form is None:
        return plan_sparse_tensor(elements, case.n, "fp16", GPU, tiles=given)
    variants = [v for v in wgmma_configs(GPU, "fp16", "sparse-wgmma") if v.shape[:2] == form]
    chosen = candidates(variants, demand_of(tiles, case.n), GPU)[0]
    tiles = cut_rows(tiles, form[0])
    items = items_of(tiles, chosen.variant, case.n, GPU)
    cycles = item_cycles(items, 64, item_cost(chosen, GPU))
    blocks = resident_blocks(chosen.variant, GPU, items.tile.size)
    assigned = assign_longest_first(items, cycles, blocks)
    return tile_plan("2:4", tiles, case.n, chosen.variant, assigned, GPU, k_order="gather", inner=elements)


def ragged_plan(n: int, form: tuple[int, int], dtype: str, blocks: int) -> KernelPlan:
    """Tiles of all kept counts, shuffled rows; one item per block, or a persistent grid."""
    tiles = ragged_map(form[0], 708, seed=n)
    variant = next(v for v in wgmma_configs(GPU, dtype, "sparse-wgmma") if v.shape[:2] == form)
    items = items_of(tiles, variant, n, GPU)
    cost = items.k_stop.astype(np.int64) + 64
    assigned = assign_longest_first(items, cost, blocks) if blocks else assign_hardware(items)
    return tile_plan(
        "2:4", tiles, n, variant, assigned, GPU, k_order="gather", inner=two_of_four_in(tiles, n)
    )


def check_forms(*, quick: bool, changes: dict[str, int]) -> list[Verdict]:
    """Every form, dtype, N and schedule on ragged maps; fewer of them if `quick`."""
    verdicts = []
    for form in FORMS:
        for dtype in ("fp16", "bf16"):
            for n in (200,) if quick else (8, 64, 203, 1024):
                for blocks in (0, 3) if quick else (0, 1, 7):
                    plan = ragged_plan(n, form, dtype, blocks)
                    inputs = random_inputs(plan, seed=n + blocks)
                    operator = compile_sparse(plan, inputs.a, changes=changes)
                    name = f"{form[0]}x{form[1]} {dtype} N={n} blocks={blocks} {changes or ''}"
                    verdicts.append(check_kept(name, operator, inputs, runs=20 if blocks else 2))
    return verdicts


def main() -> int:
    """Check, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=400.0, help="start no layer after this long")
    parser.add_argument("--layers", default="", help="numbers of the layers, from 0; all if empty")
    parser.add_argument("--densities", default="0.25,0.125,0.5")
    parser.add_argument("--forms", default="", help="forms beside the planner's choice, e.g. 256x128,128x256")
    parser.add_argument("--changes", default="", help="variants of the first of them, e.g. FENCE=0;PDL=0")
    options = parser.parse_args()
    session = Session(Path(options.out) / "gpu_sparse.json", sys.argv[1:])
    session.record["height"] = options.height
    numbers = [int(x) for x in options.layers.split(",")] if options.layers else range(len(LAYERS))

    def work() -> None:
        session.check(
            {
                "guarded": lambda: check_forms(quick=True, changes={"GUARD": 1}),
                "forms": lambda: check_forms(quick=options.quick, changes={}),
            }
        )
        _time_all(options, session, [LAYERS[i] for i in numbers])

    done = session.run(work)
    print_results(session.record)
    return 0 if done else 1


def _time_all(options: argparse.Namespace, session: Session, layers: list[tuple[int, int, int]]) -> None:
    densities = [float(d) for d in options.densities.split(",")]

    def timed(layer: tuple[int, int, int], stream: Any) -> list[dict[str, Any]]:
        cases = [Case(*layer, d) for d in densities if d < 0.5 or layer in LARGE]
        return _time_layer(cases, stream, options)

    session.time_layers(layers, options.seconds, timed)


def _time_layer(cases: list[Case], stream: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases of a layer in all forms asked for with its dense products, in turn."""
    sets = input_sets(*cases[0][:3])
    contestants = dense_contestants(stream, sets)
    dense_names = [c.name for c in contestants]
    entries: dict[str, dict[str, Any]] = {}
    for case in cases:
        for form, text in _asked(options):
            plan = plan_of_case(case, options.height, tuple(map(int, form.split("x"))) if form else None)
            changes = {text.split("=")[0]: int(text.split("=")[1])} if text else {}
            name = f"{case.name} {form} {text}".strip()
            found = _contestant(name, plan, sets, stream, changes)
            about = {"name": name, "changes": changes, "form": form, "verdict": found.verdict._asdict()}
            entries[name] = _entry(case, plan) | about
            contestants += found.contestants
        if case.density == 0.5:
            contestants += _peer(case, sets)
    samples = take_turns(stream, contestants, options.turns)
    dense = min((samples[n] for n in dense_names), key=lambda s: s.median)
    for entry in entries.values():
        entry |= _times(entry, samples, dense)
        print(line(entry), flush=True)
    return list(entries.values())


def _asked(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Forms, empty for the planner's, and a variant of each, empty for none."""
    forms = options.forms.split(",")
    asked = [(form, "") for form in ["", *filter(None, forms)]]
    return asked + [(forms[0], text) for text in filter(None, options.changes.split(";"))]


def _entry(case: Case, plan: KernelPlan) -> dict[str, Any]:
    return {
        "case": case._asdict(),
        "layer": case.layer,
        "block": list(plan.shape),
        "items": plan.item_count,
        "blocks": plan.blocks,
    }


def _times(entry: dict[str, Any], samples: dict[str, Sample], dense: Sample) -> dict[str, Any]:
    """What was measured of an entry, and of its peer."""
    found: dict[str, Any] = {"dense_us": dense.median * 1e6}
    if entry["name"] in samples:
        s = samples[entry["name"]]
        found |= {"us": s.median * 1e6, "speedup": dense.median / s.median, "seconds": s.seconds}
        found["clock_mhz"] = float(np.median(s.clock_mhz))
    if "cusparselt" in samples and entry["case"]["density"] == 0.5:
        found["cusparselt_us"] = samples["cusparselt"].median * 1e6
    return found


class _Found(NamedTuple):
    verdict: Verdict
    contestants: list[Contestant]


def _contestant(name: str, plan: KernelPlan, sets: Sets, stream: Any, changes: dict[str, int]) -> _Found:
    inputs = random_inputs(plan, seed=11)
    operator = compile_sparse(plan, inputs.a, changes=changes)
    verdict = check_kept(name, operator, inputs, runs=3)
    if not verdict.passes:
        print(f"  WRONG {verdict}", flush=True)
        return _Found(verdict, [])
    del inputs
    cp.get_default_memory_pool().free_all_blocks()
    with_places = 2 * 1.125  # two bits for each weight say where it lies
    return _Found(verdict, [operator_contestant(name, operator, sets, stream, weight_bytes=with_places)])


def _peer(case: Case, sets: Sets) -> list[Contestant]:
    """The library through torch, where it takes the shape."""
    try:
        return [_cusparselt(case, sets)]
    except Exception as reason:
        print(f"cuSPARSELt left out: {type(reason).__name__} {str(reason)[:100]}")
        return []


def _cusparselt(case: Case, sets: Sets) -> Contestant:
    import torch

    kept = torch.tensor([True, False, True, False], device="cuda").repeat(case.k // 4)
    pairs = []
    for a, b, _ in sets:
        dense = torch.from_dlpack(a) * kept
        pairs.append((torch.sparse.to_sparse_semi_structured(dense), torch.from_dlpack(b)))
    for a, b in pairs:
        torch.mm(a, b)
    torch.cuda.synchronize()
    launches = 8
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept_alive = [torch.mm(*pairs[i % len(pairs)]) for i in range(launches)]
    external = torch.cuda.ExternalStream(cp.cuda.get_current_stream().ptr)

    def replay() -> None:
        with torch.cuda.stream(external):
            graph.replay()

    return Contestant("cusparselt", replay, launches, holds=(pairs, kept_alive))


def line(entry: dict[str, Any]) -> str:
    """One case on one line."""
    if "us" not in entry:
        return f"{entry['name']:<34} WRONG"
    case = entry["case"]
    useful = 2 * case["m"] * case["k"] * case["n"] * case["density"] / entry["us"] * 1e-6
    peer = f" cuSPARSELt {entry['cusparselt_us']:.1f} us" if "cusparselt_us" in entry else ""
    return (
        f"{entry['name']:<34} {entry['block'][0]}x{entry['block'][1]:<4} {entry['items']:5} items"
        f"{entry['dense_us']:8.1f} us dense {entry['us']:8.1f} us {entry['speedup']:5.2f}x {useful:4.0f} TF"
        f" {entry['clock_mhz']:5.0f} MHz{peer}"
    )


def print_results(record: dict[str, Any]) -> None:
    """Goals and what was reached."""
    checks = record["checks"]
    print(f"checks: {sum(c['passes'] for c in checks)} of {len(checks)} right")
    for density, (large, every) in GOALS.items():
        own = [
            e for e in record["cases"] if e["case"]["density"] == density and "us" in e and not e["changes"]
        ]
        for title, layers, goal in (("five large", LARGE, large), ("twelve", LAYERS, every)):
            names = {"x".join(map(str, layer)) for layer in layers}
            found = [math.log(e["speedup"]) for e in own if e["layer"] in names]
            if found:
                name = f"TVW {1 - density:.1%} sparse, {title} ({len(found)} measured), x"
                print_goal(
                    Goal(name=name, limit=goal, unit="x", at_least=True), math.exp(sum(found) / len(found))
                )


if __name__ == "__main__":
    sys.exit(main())
