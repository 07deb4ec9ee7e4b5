"""Pictures of predictions on matplotlib axes, for the report, the validation page and notebooks.

They predict nothing. Sizes, files and pages are the caller's; colours come from a `Palette`. Matplotlib is
loaded with this package, so the packages above import it inside functions.

Read first: `prunecast/axes.py`, then any picture: `plots.py` (one kernel), `comparisons.py` (several).
"""

__all__: list[str] = []
