"""`Promise`: the predicted times that `prunecast prune` stored in the recipe of a folder that it wrote."""

import json
from pathlib import Path
from typing import NamedTuple, Self

from prunecast.errors import BadInput
from prunecast.launch import Conditions
from prunecast.patterns.sources.readers import RECIPE
from prunecast.workload.graph.config import CONFIG
from prunecast.workload.graph.shapes import SEQUENCE, Pass, parse_workload
from prunecast.workload.timed_passes import BATCH

POINTS = 0.03
"""A promise is kept if the measured ratio of sparse to dense time exceeds the promised ratio by at most this
difference. Kind: choice."""


class Promise(NamedTuple):
    """Settings for which a folder was pruned to a latency, and its predicted times in seconds."""

    run: Pass
    gpu: str
    engine: str
    dense_seconds: float
    seconds: float
    conditions: Conditions
    """Conditions for which the times were predicted."""

    @property
    def share(self) -> float:
        """Predicted time of the pruned model divided by that of the dense model."""
        return self.seconds / self.dense_seconds

    @classmethod
    def of(cls, model: str) -> Self | None:
        """Return the pass and the predicted times in the recipe of a pruned Hugging Face folder.

        Return None for a folder without a recipe, or with one that has no latency target.

        Raises
        ------
        BadInput : the times are not those of a single pass in torch, or the recipe cannot be read
        """
        file = Path(model) / RECIPE
        if not (file.is_file() and (Path(model) / CONFIG).is_file()):
            return None
        try:
            recipe = json.loads(file.read_text(encoding="utf-8"))
            if "targets" not in recipe:
                return None
            text, runtime = recipe["workload"], recipe["runtime"]
            times = float(recipe["dense_seconds"]), float(recipe["seconds"])
            gpu, engine, conditions = str(recipe["gpu"]), str(recipe["engine"]), Conditions.of(recipe)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{file}: wanted the recipe of `prunecast prune`, but: {error!r:.80}") from None
        if runtime != "torch":
            raise BadInput(f"{file}: its time is of {runtime!r:.20}: wanted prune --runtime torch")
        passes = parse_workload(text) if isinstance(text, str) else (Pass(BATCH, SEQUENCE, label="default"),)
        if len(passes) > 1:
            raise BadInput(f"{file}: --model measures one pass, its time is of {text!r:.60}")
        return cls(passes[0], gpu, engine, *times, conditions)
