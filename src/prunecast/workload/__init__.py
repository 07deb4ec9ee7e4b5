"""Workload: the layers and model graphs of a network, and the time of one forward pass.

Layer: below `codesign`, above `choice`. This package reads layers from files, ONNX models, Hugging Face
folders and standard models, prunes a layer to a sparsity map for a kernel, requests the time of each launch
from an engine, and sums the times of launches to the time of a pass. Comparisons and searches over a whole
network are in `codesign`.

Read first: `load.py` (loads any source), `workload.py` (class `Workload`), `graph/model_graph.py`
(operations of a pass), `engines.py` (one interface to the simulator and the closed form), `layer_launches.py`
(the launches of one layer with one kernel).
"""

from prunecast.workload.candidates import candidates, kernels_of
from prunecast.workload.conv_settings import ConvSettings
from prunecast.workload.engines import Engine

__all__ = ["ConvSettings", "Engine", "candidates", "kernels_of"]
