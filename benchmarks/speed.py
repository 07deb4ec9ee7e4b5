"""How fast prunecast itself is: engine, model, planner, and the whole command.

python -m benchmarks.speed
"""

import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.goals import Goal, print_goal
from benchmarks.tile.cases import tile_map
from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_dense
from prunecast.launch import launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models import estimate
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import engine, engine_state, simulate
from prunecast.simulator.lower import lower

WEIGHTS = Path(__file__).parents[1] / "examples" / "stdlib_lm" / "weights.safetensors"
PREDICT = [
    sys.executable,
    "-m",
    "prunecast",
    "predict",
    str(WEIGHTS),
    "--gpu",
    "h200-sxm",
    "--ignore",
    "re:embed",
]


def median_s(function: Callable[[], object], repeats: int = 5) -> float:
    """Median wall time of a call after one that is not counted."""
    function()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def benchmark_engine(plan: KernelPlan) -> None:
    """Rates of the jitted loop alone, in instructions and in scheduler decisions."""
    gpu = load_gpu("h200-sxm")
    context = launch_context(plan, gpu)
    lowered = lower(context, memory_rules(context), policy=0, clock_hz=1.5e9)
    state = engine_state.new_state(lowered.machine, lowered.program, lowered.work)

    def run() -> None:
        nonlocal state
        state = engine_state.new_state(lowered.machine, lowered.program, lowered.work)
        engine_state.run_engine(state)

    seconds = median_s(run)
    instructions = int(state.mem[engine.G_INSTRUCTIONS])
    operations = int(state.mem[engine.G_OPERATIONS])
    goal = Goal(
        name="engine: warp instructions per second, one core", limit=20, unit="million", at_least=True
    )
    print_goal(goal, instructions / seconds / 1e6)
    decisions = operations / seconds / 1e6
    print(f"engine: scheduler decisions, a burst of one warp counted once: {decisions:.2f} million/s")


def benchmark_calls(plan: KernelPlan) -> None:
    """Simulator and model on STSpMM 4096 x 4096 x 4096 at 75 %."""
    gpu = load_gpu("h200-sxm")
    name = "STSpMM 4096x4096x4096 at 75 %: "
    print_goal(Goal(name=name + "simulate", limit=1.0, unit="s"), median_s(lambda: simulate(plan, gpu)))
    print_goal(
        Goal(name=name + "estimate", limit=1.0, unit="ms"), 1e3 * median_s(lambda: estimate(plan, gpu), 50)
    )
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print_goal(Goal(name=name + "peak memory of this process", limit=2.0, unit="GB"), peak_gb)


def benchmark_dense(shapes: int = 200) -> None:
    """CPU time of planning and closed form of the dense product: one shape, and random ones."""
    gpu, draw = load_gpu("h200-sxm"), random.Random(1)

    def once(m: int, k: int, n: int) -> float:
        begin = time.process_time()
        estimate(plan_dense(m, k, n, "fp16", gpu), gpu)
        return 1e3 * (time.process_time() - begin)

    def size(least: int, most: int) -> int:
        return round(math.exp(draw.uniform(math.log(least), math.log(most))))

    one = statistics.median([once(4096, 4096, 4096) for _ in range(21)][1:])
    print_goal(Goal(name="dense 4096x4096x4096: plan and estimate, CPU", limit=2.0, unit="ms"), one)
    many = [once(size(64, 20_000), size(64, 20_000), size(1, 8192)) for _ in range(shapes)]
    name = f"dense, mean of {shapes} random shapes: plan and estimate, CPU"
    print_goal(Goal(name=name, limit=4.0, unit="ms"), statistics.mean(many))


def benchmark_command() -> None:
    """The whole command on the bundled weights, all kernels: with an empty cache, then warm."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}

        def run() -> None:
            subprocess.run(PREDICT, env=environment, check=True, capture_output=True)

        begin = time.perf_counter()
        run()
        first = time.perf_counter() - begin
        print_goal(Goal(name="predict, bundled weights, first run", limit=40, unit="s"), first)
        print_goal(Goal(name="predict, bundled weights, warm", limit=6, unit="s"), median_s(run, 3))
    help_call = [sys.executable, "-m", "prunecast", "--help"]
    seconds = median_s(lambda: subprocess.run(help_call, check=True, capture_output=True))
    print_goal(Goal(name="prunecast --help, warm", limit=0.3, unit="s"), seconds)


def main() -> None:
    """Print every number beside its goal."""
    plan = fastest_plan("stspmm", tile_map(4096, 4096, 0.25), 4096, "fp16", load_gpu("h200-sxm"))
    benchmark_engine(plan)
    benchmark_calls(plan)
    benchmark_dense()
    benchmark_command()


if __name__ == "__main__":
    main()
