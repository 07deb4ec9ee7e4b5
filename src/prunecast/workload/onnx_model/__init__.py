"""ONNX files as whole models: the graph of operations whose time `workload.graph` predicts.

Layer: inside `workload`, above `graph`. This package reads sizes and operators and runs nothing; weights are
read by `patterns.sources.onnx_file`. It determines the kind and the sizes of each operation, not its time.

Read first: `read_model.py` (from file to graph), then `operators.py` (shapes, and one node).
"""

__all__: list[str] = []
