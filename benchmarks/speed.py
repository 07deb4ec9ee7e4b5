"""How fast prunecast itself is: engine, model, planner, and the whole command.

python -m benchmarks.speed
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.goals import Goal, print_goal
from benchmarks.tile.cases import Case, tile_map
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_stspmm
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
    lowered = lower(plan, gpu, slots=1, policy=0, clock_hz=1.5e9)
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
    plan = plan_stspmm(tile_map(Case(4096, 4096, 4096, 0.25)), 4096, "fp16", load_gpu("h200-sxm"))
    benchmark_engine(plan)
    benchmark_calls(plan)
    benchmark_command()


if __name__ == "__main__":
    main()
