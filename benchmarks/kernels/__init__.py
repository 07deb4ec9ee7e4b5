"""Are the kernels right on a GPU, are their configs chosen well, and what do other libraries reach?"""
