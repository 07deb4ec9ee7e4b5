"""Is TileSparseLinear right on a GPU, and what does a call cost?"""
