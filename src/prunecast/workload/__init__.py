"""Workload: the layers and model graphs that a network runs, and the seconds of one forward pass.

Layer: below `codesign`, above `choice`. It reads layers from files, ONNX models, Hugging Face folders and
standard model names, prunes a layer to a sparsity map for a kernel, asks an engine for the time of each
launch, and adds up launches to passes. It answers no question about a model: those are in `codesign`.

Read first: `workload.py` (layers and passes of any source), `graph/model_graph.py` (operations of a pass),
`engines.py` (simulator and closed form behind one call), `layer_launches.py` (one layer, one kernel).
"""

from prunecast.workload.candidates import Candidate, candidates, kernels_of
from prunecast.workload.engines import ENGINES, Engine
from prunecast.workload.layers import ConvSettings, Skipped

__all__ = ["ENGINES", "Candidate", "ConvSettings", "Engine", "Skipped", "candidates", "kernels_of"]
