"""Draws docs/explanation/timeline.png; `python docs/explanation/draw_timeline.py` makes it anew."""

from pathlib import Path

import numpy as np

import prunecast

weights = np.random.default_rng(0).normal(size=(4096, 4096)).astype(np.float16)
table = prunecast.predict(
    weights, gpu="h200-sxm", tokens=4096, sparsity=0.75, kernels=("dense", "stspmm"), crossovers=False
)
axes = table[1].plot_timeline()
axes.figure.savefig(Path(__file__).with_name("timeline.png"), dpi=110)
