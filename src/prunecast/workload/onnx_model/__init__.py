"""ONNX files as whole models: the graph of operators that `workload.graph` costs.

Layer: inside `codesign`, above `graph`. This package reads sizes and operators and runs nothing; weights are
read by `patterns.sources.onnx_file`. It decides the kind and the sizes of each operator, not its time.

Read first: `read_model.py` (from file to graph), then `operators.py` (shapes, and one node).
"""

__all__: list[str] = []
