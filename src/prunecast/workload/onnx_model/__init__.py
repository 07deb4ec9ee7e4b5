"""ONNX files as whole models: the graph of operators that `workload.graph` costs.

Floor: inside `codesign`, above `graph`. It reads sizes and operators and runs nothing; weights are read by
`patterns.sources.onnx_file`. What an operator means to the time is decided here, how long it takes is not.

Read first: `read_model.py` (the whole way), then `sizes.py` (shapes) and `operators.py` (one node).
"""

__all__: list[str] = []
