"""The operators on a GPU: kernels loaded and launched through the driver, with torch's memory and streams.

Neither CuPy nor NumPy runs between an operator's call and its launch. Read first: `launches.py`.
"""

__all__: list[str] = []
