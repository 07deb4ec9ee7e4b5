"""Is 2:4 inside tiles (TVW) right where tiles are split along K, and how fast against cuBLAS?

    python -m benchmarks.kernels.two_of_four run --out DIR [--large]
    python -m benchmarks.kernels.two_of_four report DIR/two_of_four.json    # no GPU needed

The layers of `benchmarks.tile` at 75 and 87.5 %, fp16. Maps: `pruned` from normal random weights by one
threshold a layer, `even` as `tvw:HEIGHT:even` prunes them, `skewed` as `pruned` but rows in blocks of
log-normal scale, `equal` tiles of random columns. Each with whole tiles and with heavy ones split, where a
plan splits any, beside cuBLAS in turn: bursts, inputs rotated over twice the L2. Times do not depend on which
two of four stay, so that weights are drawn as the kernel reads them; results are checked before, tile by
tile, on ragged maps.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.goals import Goal, print_goal
from benchmarks.suite import build_all
from benchmarks.tile.cases import GPU, LARGE, LAYERS, ragged_map
from prunecast.choice import configs_of, plans_with
from prunecast.kernels import KernelPlan
from prunecast.kernels.device.tile_stages import tile_stages
from prunecast.kernels.tile.config import wgmma_configs
from prunecast.kernels.tile.cuda.work_image import GATHER_ROWS, STAGE_COLUMNS, packed_plan
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.kernels.two_of_four.cuda.operator import (
    SPARSE_ARGS,
    SparseOperator,
    stage_bytes,
)
from prunecast.models import estimate
from prunecast.patterns import ElementMap, NestedMap, TileMap, element_map_from_mask, parse_pattern
from prunecast.patterns.adaptive_tile import AdaptiveRule, prune_adaptive_tile
from prunecast.plan.assignment import assign_longest_first, split_items

SPARSITIES = (0.75, 0.875)
MAPS = (("pruned", 128), ("pruned", 256), ("even", 256), ("skewed", 256), ("equal", 256))
"""Kinds of maps, and heights of their tiles, of which the pruner may choose the faster."""
GOALS = {0.75: (2.6, 2.1), 0.875: (4.5, 3.3)}
"""Sparsity -> least geometric mean of `pruned` over five large and over twelve layers."""
SCALE_SPREAD, SCALE_ROWS = 0.3, 256
TURNS = 7
_PLACES = np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110], np.uint8)
"""Two places of four that differ and ascend, the first in the lower bits. Kind: definition, PTX ISA."""


class Case(NamedTuple):
    """One map of one layer."""

    layer: tuple[int, int, int]
    sparsity: float
    kind: str
    height: int

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.layer))} {self.sparsity:g} {self.kind} rows={self.height}"


class Entry(NamedTuple):
    """A plan of a case, and what the closed form says of it."""

    case: Case
    way: str
    """`whole` or `split`."""
    plan: KernelPlan
    model_us: float


def cases(kinds: Sequence[str], layers: Iterable[tuple[int, int, int]]) -> list[Case]:
    """Those of some kinds of maps."""
    maps = [each for each in MAPS if each[0] in kinds]
    return [Case(layer, s, kind, height) for layer in layers for s in SPARSITIES for kind, height in maps]


def entries(case: Case) -> Iterator[Entry]:
    """The best config with whole tiles, and the best with split ones where there is one."""
    m, k, n = case.layer
    rng = np.random.default_rng([m, k])
    weights = np.abs(rng.standard_normal((m, k), dtype=np.float32))
    if case.kind == "skewed":
        scales = np.repeat(rng.lognormal(0.0, SCALE_SPREAD, -(-m // SCALE_ROWS)), SCALE_ROWS)
        weights *= scales[:m, None].astype(np.float32)
    tiles = _tiles({"w": weights}, case)
    kept = NestedMap(tiles=tiles, inner=nothing_in(tiles))
    best: dict[str, Entry] = {}
    for config in configs_of("2:4", kept, n, "fp16", GPU):
        plans = plans_with(config, "2:4", kept, n, "fp16", GPU)
        for way, plan in zip(("whole", "split"), plans, strict=False):
            entry = Entry(case, way, plan, 1e6 * estimate(plan, GPU).seconds)
            best[way] = min(best.get(way, entry), entry, key=lambda each: each.model_us)
    yield from best.values()


def _tiles(weights: dict[str, Any], case: Case) -> TileMap:
    """What `tvw:HEIGHT` or `tvw:HEIGHT:even` keeps before 2:4 halves it."""
    pattern = parse_pattern(f"tile-wise:{case.height}")
    of_tiles = 1.0 - 2.0 * (1.0 - case.sparsity)
    if case.kind == "equal":
        share, seed = round(case.layer[1] * (1.0 - of_tiles)), [*case.layer[:2], case.height]
        drawn = np.random.default_rng(seed)
        rows = [drawn.permutation(case.layer[1]) < share for _ in range(-(-case.layer[0] // case.height))]
        found = pattern.map(np.repeat(rows, case.height, axis=0)[: case.layer[0]])
    elif case.kind == "even":
        rule = AdaptiveRule(height=case.height, flexible=True)
        found = pattern.map(prune_adaptive_tile(weights, of_tiles, rule)["w"])
    else:
        found = pattern.map(pattern.prune(weights, of_tiles)["w"])
    assert isinstance(found, TileMap)
    return found


def nothing_in(tiles: TileMap) -> ElementMap:
    """Stands for elements where only tiles matter."""
    none = np.zeros(0, np.int32)
    start = np.zeros(tiles.m + 1, np.int32)
    return ElementMap(m=tiles.m, k=tiles.k, row_start=start, column_index=none, pattern=tiles.pattern)


def ragged_plans() -> Iterator[tuple[str, KernelPlan]]:
    """Every form, dtype and some numbers of tokens and blocks, with whole tiles and with split ones."""
    for config in wgmma_configs(GPU, "fp16", "sparse-wgmma"):
        for n, blocks, dtype in ((200, 13, "fp16"), (203, 13, "bf16"), (1024, 132, "fp16")):
            tiles = ragged_map(config.shape.block_m, 708, seed=n)
            own = replace(config, dtype=dtype)
            items = items_of(tiles, own, n, GPU)
            for slices in (1, 3, 8):
                steps = np.maximum(-(-items.k_stop // config.shape.block_k), 1)
                parts = split_items(items, np.minimum(steps, slices), config.shape.block_k)
                assigned = assign_longest_first(parts, (parts.k_stop - parts.k_start) + 64, blocks)
                options: dict[str, Any] = {"b_access": "gather", "inner": first_two(tiles)}
                plan = tile_plan("2:4", tiles, n, own, assigned, GPU, **options)
                yield f"{own} {dtype} N={n} blocks={blocks} slices={slices}", plan


def first_two(tiles: TileMap) -> ElementMap:
    """The first two of every four columns of a tile, in all of its rows."""
    mask = np.zeros((tiles.m, tiles.k), bool)
    for t, rows in enumerate(np.split(tiles.row_index, tiles.row_start[1:-1])):
        columns = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        mask[np.ix_(rows[: tiles.rows_per_tile[t]], columns[np.arange(columns.size) % 4 < 2])] = True
    return element_map_from_mask(mask, tiles.pattern)


def run(options: argparse.Namespace) -> int:
    """Check, time, write, print."""
    from benchmarks.on_gpu.session import Session

    session = Session(options.out / "two_of_four.json", {k: str(v) for k, v in vars(options).items()})
    kinds, layers = options.kinds.split(","), LARGE if options.large else LAYERS
    found = [entry for case in cases(kinds, layers) for entry in entries(case)]
    build_all([entry.plan for entry in found])

    def timed(layer: Any, stream: Any) -> list[dict[str, Any]]:
        return _time_layer([entry for entry in found if entry.case.layer == layer], stream)

    def work() -> None:
        if session.check({"2:4 on ragged maps": _checks}):
            session.time_layers(dict.fromkeys(entry.case.layer for entry in found), options.seconds, timed)

    went = session.run(work)
    report(session.record)
    return 0 if went else 1


def _checks() -> Iterator[Any]:
    from benchmarks.on_gpu.check import check, random_inputs

    for name, plan in ragged_plans():
        inputs = random_inputs(plan, plan.n)
        yield check(name, SparseOperator.compile(plan, inputs.a), inputs, runs=5)


def _time_layer(found: list[Entry], stream: Any) -> list[dict[str, Any]]:
    from benchmarks.on_gpu.rotation import dense_contestants, input_sets, launcher, rotation_of
    from benchmarks.on_gpu.timing import contestant, rotations, take_turns

    m, k, n = found[0].case.layer
    sets = input_sets(m, k, n)
    contestants, names = dense_contestants(stream, sets), [f"{each.case} {each.way}" for each in found]
    for name, entry in zip(names, found, strict=True):
        kept_bytes = 1.125 * m * k * (1.0 - entry.case.sparsity) + 2 * (k * n + m * n)
        rotation = rotation_of(_drawn_operator(entry.plan), sets, rotations(kept_bytes))
        clock = rotation.operators[0].clock
        run_it = launcher(rotation)
        contestants.append(contestant(name, stream, run_it, sets=len(rotation.operators), clock=clock))
    samples = take_turns(stream, contestants, TURNS)
    dense_us = 1e6 * min(samples[each.name].median for each in contestants[:2])
    return [
        _row(entry, samples[name]) | {"dense_us": dense_us} for name, entry in zip(names, found, strict=True)
    ]


def _row(entry: Entry, sample: Any) -> dict[str, Any]:
    return {
        **entry.case._asdict(),
        "way": entry.way,
        "config": entry.plan.config,
        "most_parts": int(entry.plan.work.parts.max()),
        "model_us": entry.model_us,
        "us": 1e6 * sample.median,
        "least_us": 1e6 * min(sample.seconds),
        "mhz": float(np.median(sample.clock_mhz)),
    }


def _drawn_operator(plan: KernelPlan) -> Any:
    """With random weights and places, made where they are read."""
    import cupy as cp

    from prunecast.kernels.device.operator import _load_kernel, _on_device

    block_m = plan.shape.block_m
    stages = tile_stages(plan.tiles, block_m, STAGE_COLUMNS)
    count, values = stages.columns.shape[0], STAGE_COLUMNS // 2 * block_m
    weights = cp.empty((count, stage_bytes(block_m)), cp.uint8)
    random = cp.random.RandomState(2)
    drawn = random.standard_normal((count, values), dtype=cp.float32).astype(cp.float16)
    weights[:, : 2 * values] = drawn.view(cp.uint8)
    low, high = (cp.asarray(_PLACES)[random.randint(0, 6, weights[:, 2 * values :].shape)] for _ in range(2))
    weights[:, 2 * values :] = low | high << 4
    packed = packed_plan(plan, SPARSE_ARGS, stages.packed(weights, GATHER_ROWS))
    form = SparseOperator.form(plan)
    kernel = _load_kernel(form.build().cubin, form.entry, plan.resources.shared_bytes)
    return SparseOperator(plan, packed, _on_device(packed, None), kernel, overlap=True)


def report(record: dict[str, Any]) -> None:
    """Speedups over cuBLAS beside the goals, and how far the closed form was."""
    checks, rows = record["checks"], record["cases"]
    print(f"checks: {sum(c['passes'] for c in checks)} of {len(checks)} right")
    for row in rows:
        name = str(Case(*(row[field] for field in Case._fields)))
        print(
            f"{name:42s} {row['way']:6s} {row['config']:14s} dense {row['dense_us']:7.1f} us, "
            f"{row['us']:7.1f} us {row['dense_us'] / row['us']:5.2f}x, model {row['model_us']:7.1f} us, "
            f"{row['mhz']:5.0f} MHz"
        )
    for sparsity, goals in GOALS.items():
        for kind in dict.fromkeys(kind for kind, _ in MAPS):
            own = [row for row in rows if row["sparsity"] == sparsity and row["kind"] == kind]
            for title, layers, goal in zip(("five large", "twelve"), (LARGE, LAYERS), goals, strict=True):
                those = [row for row in own if tuple(row["layer"]) in layers]
                _print_speedup(f"{sparsity:.1%} {kind}, {title}", those, goal)


def _print_speedup(title: str, rows: list[dict[str, Any]], goal: float) -> None:
    """The plan that the closed form finds faster, of the faster height; then whole tiles alone."""
    if not rows:
        return
    least: dict[Any, float] = {}
    for row in rows:
        key = (*row["layer"], row["height"])
        least[key] = min(row["model_us"], least.get(key, math.inf))
    chosen = [row for row in rows if row["model_us"] == least[(*row["layer"], row["height"])]]
    whole = [row for row in rows if row["way"] == "whole"]
    name = f"{title}, whole tiles alone {_mean_of_best(whole):.2f}, {len(rows) - len(whole)} maps split"
    print_goal(Goal(name=name, limit=goal, unit="x", at_least=True), _mean_of_best(chosen))


def _mean_of_best(rows: list[dict[str, Any]]) -> float:
    best: dict[Any, float] = {}
    for row in rows:
        layer = tuple(row["layer"])
        best[layer] = max(row["dense_us"] / row["us"], best.get(layer, 0.0))
    return math.exp(sum(map(math.log, best.values())) / len(best)) if best else math.nan


def main() -> int:
    """Run, or report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("report").add_argument("record", type=Path)
    on_gpu = what.add_parser("run")
    on_gpu.add_argument("--kinds", default=",".join(dict.fromkeys(kind for kind, _ in MAPS)))
    on_gpu.add_argument("--large", action="store_true", help="the five large layers only")
    on_gpu.add_argument("--out", type=Path, required=True)
    on_gpu.add_argument("--seconds", type=float, default=110.0, help="start no layer after this long")
    options = parser.parse_args()
    if options.what == "run":
        return run(options)
    report(json.loads(options.record.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
