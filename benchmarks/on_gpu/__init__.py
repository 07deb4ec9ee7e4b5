"""What several `gpu_*` commands share once they are on a GPU; importing most of it needs CuPy."""
