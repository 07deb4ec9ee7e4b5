"""Board power and energy of a pass that repeats back to back for seconds.

The power model of `hardware.power` needs the mean activity over time. Activity is a weighted sum of tensor
duty, L2 traffic and DRAM traffic (`hardware.clock.activity_of`). The activity of a pass is the mean over its
launches, weighted by their seconds. For a planned kernel, the engine returns tensor duty and traffic. For any
other launch they follow from its floating-point operations and from the elements that it reads and writes;
each element moves once through L2 and once through DRAM.

The power model was fitted to dense products and to dense and pruned models on H200s.
"""

from collections.abc import Mapping

from prunecast.hardware import GpuSpec
from prunecast.hardware.clock import activity_of
from prunecast.simulator import SimResult
from prunecast.workload.engines import Outcome
from prunecast.workload.graph.model_graph import ModelGraph
from prunecast.workload.graph.model_time import ModelTime
from prunecast.workload.graph.runtimes import ELEMENT_BYTES


def plan_activity(outcome: Outcome, gpu: GpuSpec, dtype: str) -> float:
    """Return the mean activity of a planned kernel over its predicted seconds, launch overhead included.

    Activity is the weighted sum of tensor duty, L2 traffic and DRAM traffic from which power is predicted.
    """
    cycles = outcome.seconds * outcome.clock_hz
    if isinstance(outcome, SimResult):
        tensor_cycles = outcome.utilisation["tensor"] * outcome.cycles
        l2_bytes, dram_bytes = float(outcome.l2_bytes), float(outcome.dram_bytes)
    else:
        bounds = {level: cycles / outcome.clock_hz for level, cycles in outcome.bound_cycles.items()}
        tensor_cycles = outcome.balance * outcome.bound_cycles["tensor"]
        l2_bytes, dram_bytes = bounds["l2"] * gpu.l2_bytes_per_s, bounds["dram"] * gpu.dram_bytes_per_s
    of_all = cycles * gpu.sm_count
    return activity_of(gpu, tensor_cycles / cycles, l2_bytes / of_all, dram_bytes / of_all, dtype)


def activity_seconds(operations: float, moved_bytes: float, gpu: GpuSpec, dtype: str) -> float:
    """Return the time integral of the activity of launches without a plan, in seconds.

    Activity is the weighted sum of tensor duty, L2 traffic and DRAM traffic from which power is predicted.

    Parameters
    ----------
    operations : floating-point operations on tensor cores
    moved_bytes : bytes read and written
    """
    clock_hz = gpu.clock_burst_hz[0]
    of_all = clock_hz * gpu.sm_count
    tensor_s = operations / (2.0 * gpu.tensor_fp16_fma_per_clk_per_sm * of_all) if operations else 0.0
    return activity_of(gpu, tensor_s, moved_bytes / of_all, moved_bytes / of_all, dtype)


def pass_activity(
    graph: ModelGraph, time: ModelTime, of_products: Mapping[str, float], gpu: GpuSpec, dtype: str
) -> float:
    """Return the mean activity of a pass over its predicted seconds.

    Activity is the weighted sum of tensor duty, L2 traffic and DRAM traffic from which power is predicted.

    Parameters
    ----------
    graph : model graph of the pass
    time : predicted time of the pass
    of_products : product -> time integral of its activity in seconds, summed over all its runs in the pass
    """
    operations = sum(o.runs * o.flops for o in graph)
    elements = sum(
        o.runs * (o.elements_in + o.elements_cached + o.elements_out)
        for o in graph
        if o.name not in of_products and o.kind != "input"
    )
    elements += 2 * sum(change.elements for change in time.transposes)
    others = activity_seconds(operations, float(ELEMENT_BYTES * elements), gpu, dtype)
    return (sum(of_products.values()) + others) / time.seconds
