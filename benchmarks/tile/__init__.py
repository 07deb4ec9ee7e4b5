"""Is the tile kernel right on a GPU, and how fast is it against cuBLAS?"""
