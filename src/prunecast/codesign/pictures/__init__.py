"""Pictures of predictions on matplotlib axes: the report and notebooks draw the same ones.

Floor: inside codesign, below `Prediction`, whose `plot_*` methods call them. They predict nothing. Sizes,
files and pages are the caller's; colours come from a `Palette`. Matplotlib is loaded with this room, so the
rooms above import it inside functions.

Read first: `axes.py`, then any picture.
"""

__all__: list[str] = []
