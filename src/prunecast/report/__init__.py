"""HTML report of a prediction, in one file that needs no network and no other file.

Layer: imports `codesign` and is imported by the command line; independent of `validation`. In addition to the
prediction it computes closed-form curves of a layer over sparsity, and the gain of changes that it advises.
It does not compare with measurements: the caller passes measured and predicted times to plot. It prints
nothing (`cli` does).

Read first: `page.py` (the whole page), then `study.py` (the data about one layer) and `pictures.py` (SVG
plots in the colours of the page).
"""

__all__: list[str] = []
