"""What launches cost beside their kernels' cycles, how they overlap, and where their blocks lie.

Read first: `launch_floor.py`; `piled_up.py` and `expected_places.py` say where few blocks lie (0008).
"""

__all__: list[str] = []
