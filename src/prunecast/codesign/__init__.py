"""Co-design: the pattern, the kernel and the GPU of a whole model, seen together.

Floor: above both engines, below `validation` and the command line. It prunes layers, hands the maps to every
kernel that can run them, asks the simulator or the closed-form model how long each takes, and puts the
answers side by side. It decides nothing about patterns (`patterns`), launches (`kernels`) or time
(`simulator`, `models`), and it never touches a GPU.

Read first: `predict.py`, `layer_launches.py` (one layer, one kernel) and `layer_job.py` (all kernels),
`contestants.py` (which kernel runs which pattern), `explain.py`.
"""

from prunecast.codesign.advice import Advice
from prunecast.codesign.compare import Comparison, ComparisonRow, compare, compare_gpus
from prunecast.codesign.contestants import Contestant, contestants, kernels_of
from prunecast.codesign.crossover import Crossover
from prunecast.codesign.engines import ENGINES, Engine
from prunecast.codesign.explain import Explanation, explain
from prunecast.codesign.explain_sections import Fact, Section
from prunecast.codesign.interval import INTERVAL_KIND
from prunecast.codesign.layers import ConvSettings, Skipped
from prunecast.codesign.predict import predict
from prunecast.codesign.prediction import Prediction
from prunecast.codesign.provenance import Provenance
from prunecast.codesign.prune import PrunedLayer, Recipe, prune
from prunecast.codesign.table import PredictionTable

__all__ = [
    "ENGINES",
    "INTERVAL_KIND",
    "Advice",
    "Comparison",
    "ComparisonRow",
    "Contestant",
    "ConvSettings",
    "Crossover",
    "Engine",
    "Explanation",
    "Fact",
    "Prediction",
    "PredictionTable",
    "Provenance",
    "PrunedLayer",
    "Recipe",
    "Section",
    "Skipped",
    "compare",
    "compare_gpus",
    "contestants",
    "explain",
    "kernels_of",
    "predict",
    "prune",
]
