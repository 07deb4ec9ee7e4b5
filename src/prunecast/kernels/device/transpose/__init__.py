"""Rows of tokens turned into rows of features, as kernels read B: what a layer of torch takes, once.

Not a product, and nothing that plans know: predictions count such a copy by its bytes.
"""

__all__: list[str] = []
