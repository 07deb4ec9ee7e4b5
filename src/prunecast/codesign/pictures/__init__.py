"""Figures of predictions on Matplotlib axes, for the report, the validation page and notebooks.

Functions draw results and predict nothing. The caller decides sizes, files and pages; colours come from a
`Palette`. This package loads Matplotlib, which is slow; other packages therefore import it inside functions.

Read first: `prunecast/axes.py`, then any figure: `plots.py` (one kernel), `comparisons.py` (several).
"""

__all__: list[str] = []
