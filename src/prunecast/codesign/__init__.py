"""Co-design of the pruning pattern, the kernel and the GPU for a whole model.

Layer: imports `workload`; is imported by `validation` and the command line. This package answers questions
about a workload: how long each layer needs with each kernel (`predict`), which resource limits it
(`explain`), how GPUs compare (`compare`), and which patterns meet a latency (`search`). Patterns are defined
in `patterns`, launches in `kernels`, and times are predicted in `simulator` and `models`. No GPU is used.

Read first: `predict.py`, `layer_job.py` (all kernels of one layer), `explain.py`.
"""

from prunecast.codesign.advice import Advice
from prunecast.codesign.compare import Comparison, ComparisonRow, compare, compare_gpus
from prunecast.codesign.crossover import Crossover
from prunecast.codesign.explain import Explanation, explain
from prunecast.codesign.explain_sections import Fact, Section
from prunecast.codesign.interval import INTERVAL_KIND
from prunecast.codesign.predict import predict
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.provenance import Provenance
from prunecast.codesign.prune import prune
from prunecast.codesign.recipe import PrunedLayer, Recipe
from prunecast.codesign.table import PredictionTable

__all__ = [
    "INTERVAL_KIND",
    "Advice",
    "Comparison",
    "ComparisonRow",
    "Crossover",
    "Explanation",
    "Fact",
    "Prediction",
    "PredictionTable",
    "Provenance",
    "PrunedLayer",
    "Recipe",
    "Section",
    "compare",
    "compare_gpus",
    "explain",
    "predict",
    "prune",
]
