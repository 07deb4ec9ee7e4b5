"""The study of a language model that a CPU trains in minutes: what ways to recover bring, without a GPU.

python examples/accuracy/run.py train --study examples/accuracy/small.py --out OUT --seeds 0
python examples/accuracy/recovery.py --study examples/accuracy/small.py --out OUT --seeds 0
"""

from __future__ import annotations

from dataclasses import replace

from language import TINY, study_of
from study import Budget, Study

SMALL = replace(TINY, layers=2, words=1024, context=64, windows=16, judged=256, text_bytes=8_000_000)


def study(tiny: bool) -> Study:
    """Two layers of 256 features; the harness's tiny study where that is asked for."""
    budget = Budget(train_steps=1000, train_rate=2e-3, tune_steps=150, tune_rate=1e-3, calibration_steps=16)
    return study_of(TINY, replace(budget, train_steps=12, tune_steps=6)) if tiny else study_of(SMALL, budget)
