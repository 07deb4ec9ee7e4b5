"""Predictions compared with kernel times that others published: `python -m benchmarks.published FOLDER`."""
