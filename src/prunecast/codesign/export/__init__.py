"""Latencies of a model for simulators of serving: `ServingTimes`, a predictor, and writers of two formats.

Layer: inside `codesign`, above `predict`. All times are those of `predict`: passes of a few numbers of
tokens, and calls of attention. Nothing is measured and no GPU is used.

Read first: `serving_times.py` (times by tokens, and `PassPredictor`), `aiconfigurator.py` and
`llmservingsim.py` (rows of the two formats), `write.py` (`export`).
"""

from prunecast.codesign.export.serving_times import PassPredictor, ServingTimes
from prunecast.codesign.export.write import FORMATS, export

__all__ = ["FORMATS", "PassPredictor", "ServingTimes", "export"]
