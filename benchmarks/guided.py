"""Does guided ATP gain on a GPU what is predicted? Ten layers against tile-wise pruning, on an H200.

    python -m benchmarks.guided predict               # no GPU needed
    python -m benchmarks.guided run --out DIR [--seconds 100]
    python -m benchmarks.guided maps [--maps 100] [--gpus h200-sxm t4] [--processes 4]    # no GPU needed

Six layers of half-normal weights under log-normal scales of columns and row blocks, four put together from
the bundled trained weights; each at 75 % with the unsplit tile-wise kernel and with STSpMM. Gain is the time
saved of that of tile-wise pruning's tiles under the same kernel, at no less importance. Every plan is checked
against float64, then all plans of a layer are timed in turn, inputs rotated over twice the L2. `run` writes
DIR/guided.json. `maps` compares guided with tile-wise pruning on skewed layers drawn at random: by how much
is it slower at worst, by either engine? `--first` names the first seed; `--unconfirmed` guides by the closed
form only.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.goals import Goal, print_goal
from benchmarks.suite import build_all
from benchmarks.tile.cases import GPU
from prunecast.choice import fastest_plan
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan
from prunecast.models import Estimate, estimate
from prunecast.patterns import TileMap, parse_pattern, weigh
from prunecast.patterns.sources import read_weights
from prunecast.simulator import SimResult, simulate
from prunecast.validation.measure.rotation import rotating_sets

WEIGHTS = Path(__file__).parent.parent / "examples" / "stdlib_lm" / "weights.safetensors"
KERNELS = ("tile-wise", "stspmm")
SPARSITY = 0.75
TURNS = 7
APART = Goal(
    name="mean of |measured - predicted gain|, closed form", limit=3.0, unit="points", at_least=False
)

Weights = npt.NDArray[np.float32]


class Layer(NamedTuple):
    """Weights (M, K), tokens and the height of tiles."""

    name: str
    weights: Weights
    n: int
    height: int


class Pair(NamedTuple):
    """The plans of one layer and kernel."""

    layer: Layer
    kernel: str
    tile_wise: KernelPlan
    guided: KernelPlan


def skewed(m: int, k: int, seed: int, of_tiles: float) -> Weights:
    """Half-normal weights under log-normal scales of columns and of blocks of 128 rows."""
    rng = np.random.default_rng(seed)
    scales = np.repeat(np.exp(of_tiles * rng.standard_normal(m // 128)), 128)[:, None]
    return (rng.standard_normal((m, k)) * scales * np.exp(0.7 * rng.standard_normal(k))).astype(np.float32)


def layers() -> list[Layer]:
    """Six skewed layers, four of trained weights side by side or one above the other."""
    sizes = [
        (2048, 2048, 4096, 2, 0.7),
        (2048, 2048, 4096, 0, 0.9),
        (1024, 4096, 4096, 1, 0.8),
        (4096, 1024, 4096, 3, 0.8),
        (3072, 768, 8192, 4, 0.6),
        (4096, 4096, 2048, 5, 0.8),
    ]
    found = [
        Layer(f"skewed {m}x{k}x{n} #{seed}", skewed(m, k, seed, of_tiles), n, 128)
        for m, k, n, seed, of_tiles in sizes
    ]
    trained = read_weights(WEIGHTS).layers
    blocks = [
        {part: trained[f"blocks.{i}.{part}.weight"].weights.astype(np.float32) for part in PARTS}
        for i in range(4)
    ]
    q, k, v, o, up, down = ([block[part] for block in blocks] for part in PARTS)
    together = {
        "trained q, k, v": np.hstack([np.vstack(parts) for parts in zip(q, k, v, strict=True)]),
        "trained o, up": np.hstack([np.vstack(parts) for parts in zip(o, up, strict=True)]),
        "trained up": np.hstack(up),
        "trained down": np.vstack(down),
    }
    return found + [Layer(name, weights, 16384, 64) for name, weights in together.items()]


PARTS = ("attention.q", "attention.k", "attention.v", "attention.o", "ffn.up", "ffn.down")


def pairs() -> list[Pair]:
    """Plans of all layers and kernels."""
    return [_pair(layer, kernel) for layer in layers() for kernel in KERNELS]


def _pair(layer: Layer, kernel: str, gpu: GpuSpec = GPU, *, confirmed: bool = True) -> Pair:
    def seconds(run: Callable[[KernelPlan, GpuSpec], Estimate | SimResult], _: str, tiles: TileMap) -> float:
        return run(_plan(tiles, layer, kernel, gpu), gpu).seconds

    importance = {layer.name: weigh(layer.name, layer.weights)}
    tile_wise = parse_pattern(f"tile-wise:{layer.height}")
    confirm = partial(seconds, simulate) if confirmed else None
    guided = parse_pattern(f"atp:{layer.height}:guided").timed_by(partial(seconds, estimate), confirm)
    plans = []
    for pattern in (tile_wise, guided):
        kept = pattern.map(pattern.prune(importance, SPARSITY)[layer.name])
        assert isinstance(kept, TileMap)
        plans.append(_plan(kept, layer, kernel, gpu))
    return Pair(layer, kernel, *plans)


def _plan(tiles: TileMap, layer: Layer, kernel: str, gpu: GpuSpec) -> KernelPlan:
    return fastest_plan(kernel, tiles, layer.n, "fp16", gpu)


def skewed_layer(seed: int) -> Layer:
    """Draw a layer of 512 to 2048 rows and columns with 128 to 4096 tokens."""
    draw = random.Random(seed)
    m, k = (draw.choice((512, 1024, 1536, 2048)) for _ in range(2))
    n = draw.choice((128, 512, 1024, 2048, 4096))
    return Layer(
        f"{m}x{k}x{n} #{seed}", skewed(m, k, seed, draw.uniform(0.0, 0.9)), n, draw.choice((64, 128))
    )


class Compared(NamedTuple):
    """A guided plan beside tile-wise pruning's: time and importance as shares of tile-wise pruning's."""

    layer: str
    model: float
    simulator: float
    importance: float


def compare(seed: int, kernel: str, name: str, *, confirmed: bool) -> Compared:
    """Guide one drawn layer for a GPU, and ask both engines for its time."""
    gpu = load_gpu(name)
    pair = _pair(skewed_layer(seed), kernel, gpu, confirmed=confirmed)
    model, simulator = (
        engine(pair.guided, gpu).seconds / engine(pair.tile_wise, gpu).seconds
        for engine in (estimate, simulate)
    )
    return Compared(
        pair.layer.name, model, simulator, retained(pair, pair.guided) / retained(pair, pair.tile_wise)
    )


def compare_maps(name: str, maps: range, processes: int, *, confirmed: bool) -> None:
    """Print how guided pruning compares with tile-wise pruning on one GPU, by either engine."""
    for kernel in KERNELS:
        one = partial(compare, kernel=kernel, name=name, confirmed=confirmed)
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            found = list(pool.map(one, maps))
        for engine in ("model", "simulator"):
            times = [float(getattr(layer, engine)) for layer in found]
            worst = int(np.argmax(times))
            slower = sum(share > 1.01 for share in times)
            print(
                f"{name:16} {kernel:10} {engine:9} mean {np.mean(times) - 1.0:+7.1%} worst"
                f" {times[worst] - 1.0:+7.1%} ({found[worst].layer}), {slower} of {len(maps)} beyond 1 %",
                flush=True,
            )
        least = min(layer.importance for layer in found)
        print(f"{name:16} {kernel:10} importance of tile-wise pruning: least {least:.6f}", flush=True)


def retained(pair: Pair, plan: KernelPlan) -> float:
    """Importance that a plan of the pair's layer keeps."""
    return float((np.abs(pair.layer.weights) * plan.tiles.mask()).sum(dtype=np.float64))


def predicted(pair: Pair) -> dict[str, Any]:
    """Sizes and microseconds of both plans by the closed form, which guided."""
    plans = (pair.tile_wise, pair.guided)
    return {
        "layer": pair.layer.name,
        "kernel": pair.kernel,
        "height": pair.layer.height,
        "kept": [round(plan.density, 4) for plan in plans],
        "model_us": [1e6 * estimate(plan, GPU).seconds for plan in plans],
    }


def simulated(pair: Pair) -> list[float]:
    """Microseconds of both plans by the simulator."""
    return [1e6 * simulate(plan, GPU).seconds for plan in (pair.tile_wise, pair.guided)]


def gain(us: list[float]) -> float:
    """Percent of tile-wise pruning's time that is saved."""
    return 100.0 * (1.0 - us[1] / us[0])


def show(row: dict[str, Any]) -> None:
    """Times and gains of one layer and kernel."""
    parts = [f"{row['layer']:26s} {row['kernel']:10s} keeps {row['kept'][0]:.1%} -> {row['kept'][1]:.1%}"]
    for name in ("model", "simulator", "measured"):
        if f"{name}_us" in row:
            us = row[f"{name}_us"]
            parts.append(f"{name} {us[0]:6.2f} -> {us[1]:6.2f} us ({gain(us):+5.1f} %)")
    print("  ".join(parts), flush=True)


def run(out: Path, seconds: float) -> None:
    """Compile, check, time, print, write."""
    began, rows = time.perf_counter(), []
    found = pairs()
    build_all([plan for pair in found for plan in (pair.tile_wise, pair.guided)])
    for pair in found:
        if time.perf_counter() - began > seconds:
            print("out of time")
            break
        rows.append({**predicted(pair), "measured_us": measured(pair)})
        show(rows[-1])
    out.mkdir(parents=True, exist_ok=True)
    (out / "guided.json").write_text(json.dumps(rows, indent=1))
    apart = [abs(gain(row["measured_us"]) - gain(row["model_us"])) for row in rows]
    print_goal(APART, float(np.mean(apart)))
    print(f"worst {max(apart):.1f} points")


def measured(pair: Pair) -> list[float]:
    """Microseconds of both plans, medians of bursts in turn. RuntimeError: one of them is wrong."""
    import cupy as cp

    from benchmarks.on_gpu.check import check, random_inputs
    from benchmarks.on_gpu.timing import MOST_SETS, contestant, take_turns
    from prunecast.kernels.compile import compile

    (m, k), n = pair.layer.weights.shape, pair.layer.n
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        count = rotating_sets(2 * (m * k * SPARSITY + k * n + m * n), most=MOST_SETS)
        random = cp.random.RandomState(1)
        bs = [random.standard_normal((k, n), dtype=cp.float32).astype(cp.float16) for _ in range(count)]
        cs = [cp.zeros((m, n), cp.float16) for _ in range(count)]
        found = []
        for name, plan in (("tile-wise", pair.tile_wise), ("guided", pair.guided)):
            inputs = random_inputs(plan, 3)
            one = compile(plan, inputs.a)
            verdict = check(name, one, inputs)
            if not verdict.passes:
                raise RuntimeError(f"{pair.layer.name}, {pair.kernel}, {name}: {verdict.detail}")
            own = [one, *(one.copy() for _ in range(count - 1))]

            def launch(i: int, own: list[Any] = own) -> Any:
                return own[i](bs[i], out=cs[i])

            found.append(contestant(name, stream, launch, sets=count))
        samples = take_turns(stream, found, TURNS)
    stream.synchronize()
    cp.get_default_memory_pool().free_all_blocks()
    return [1e6 * samples[name].median for name in ("tile-wise", "guided")]


def main() -> None:
    """Predict, or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("predict", "run", "maps"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=130.0)
    parser.add_argument("--maps", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first map")
    parser.add_argument("--processes", type=int, default=1, help="processes that share the maps")
    parser.add_argument("--gpus", nargs="*", default=["h200-sxm", "a100-sxm4-40gb", "t4"])
    parser.add_argument("--unconfirmed", action="store_true")
    options = parser.parse_args()
    if options.what == "maps":
        seeds = range(options.first, options.first + options.maps)
        for gpu in options.gpus:
            compare_maps(gpu, seeds, options.processes, confirmed=not options.unconfirmed)
        return
    if options.what == "run":
        run(options.out, options.seconds)
        return
    for pair in pairs():
        show({**predicted(pair), "simulator_us": simulated(pair)})


if __name__ == "__main__":
    main()
