"""Models as graphs of operations: the kinds of work, their sizes and their dependencies.

Layer: inside `workload`. This package knows the shapes of standard architectures and the time of all work
without a weight matrix (attention, norms, element-wise work, transposes). It prunes nothing and plans no
kernel: the caller passes in the times of products with weights.

Read first: `model_graph.py` (the records and the graph), `workloads.py` (the models by name), `fusions.py`,
`convolutions.py` and `transposes.py` (rewrites), `runtimes.py` (the rewrites of each runtime, and
seconds by kind), `model_time.py` (the end-to-end time).
"""

from prunecast.workload.graph.model_graph import ModelGraph, Operation
from prunecast.workload.graph.model_time import ModelTime, model_time
from prunecast.workload.graph.names import WORKLOADS
from prunecast.workload.graph.runtimes import RUNTIMES
from prunecast.workload.graph.shapes import Pass, parse_workload
from prunecast.workload.graph.workloads import load_pass, transformer_graph

__all__ = [
    "RUNTIMES",
    "WORKLOADS",
    "ModelGraph",
    "ModelTime",
    "Operation",
    "Pass",
    "load_pass",
    "model_time",
    "parse_workload",
    "transformer_graph",
]
