"""Search: which pattern, density and kernel each layer of a model gets, so that the whole meets its targets.

Floor: inside `codesign`, above `graph`. It asks the engines for times and the patterns for masks, and decides
between options; it knows nothing about how a time is predicted or a mask is made.

Read first: `allocation.py` (the choice), `menus.py` (what there is to choose from), `target.py` (the loop).
"""
