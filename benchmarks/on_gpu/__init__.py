"""What commands share once they run on a GPU; importing most of it needs CuPy."""
