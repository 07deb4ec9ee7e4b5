"""Export of predicted latencies of a model to simulators of LLM serving.

Layer: part of `codesign`; calls `predict`. The times are predictions for passes with a few numbers of tokens,
and for single calls of attention. Nothing is measured and no GPU is used.

Read first: `serving_times.py` (times by number of tokens, and `PassPredictor`), `aiconfigurator.py` and
`llmservingsim.py` (rows of the two file formats), `write.py` (`export`).
"""

from prunecast.codesign.export.serving_times import PassPredictor, ServingTimes
from prunecast.codesign.export.write import FORMATS, export

__all__ = ["FORMATS", "PassPredictor", "ServingTimes", "export"]
