"""The report: one HTML file about one prediction, which needs no network and no other file.

Floor: above codesign, below the command line, beside validation. It predicts nothing new but the closed-form
curves of a layer, judges no measurement (`validation` does, and hands over points), and prints nothing on
a terminal (`cli`).

Read first: `page.py` (the whole page), then `study.py` (what is said about one layer) and
`pictures.py` (SVG that follows the page's colours).
"""

__all__: list[str] = []
