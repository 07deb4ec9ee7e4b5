"""Work items: which exist, in which order, and who does them.

Read first: `items.py`, then `order.py`.
"""

__all__: list[str] = []
