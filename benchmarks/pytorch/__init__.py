"""Is SparseLinear right on a GPU, and what does a call cost?"""
