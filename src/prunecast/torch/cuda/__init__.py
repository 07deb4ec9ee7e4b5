"""The operators on a GPU: kernels are loaded and launched through the driver, with torch's memory and
streams.

Once a product is prepared, neither CuPy nor NumPy runs between a call of its operator and the launch. Read
first: `launches.py`.
"""

__all__: list[str] = []
