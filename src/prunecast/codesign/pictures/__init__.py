"""Figures of predictions on matplotlib axes, for the report, the validation page and notebooks.

They predict nothing. The caller decides sizes, files and pages; colours come from a `Palette`. Matplotlib is
loaded with this package, so that the packages above import it inside functions.

Read first: `prunecast/axes.py`, then any figure: `plots.py` (one kernel), `comparisons.py` (several).
"""

__all__: list[str] = []
