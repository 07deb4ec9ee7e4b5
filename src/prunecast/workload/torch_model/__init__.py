"""Torch modules as whole models: the graph of operations whose time `workload.graph` predicts.

Layer: inside `workload`, above `graph`. This package traces a module with torch.fx and finds the sizes of all
tensors by a run over fake tensors, which computes nothing. It determines the kind and the sizes of each
operation, not its time. PyTorch is imported when a module is read.

Read first: `read_module.py`.
"""

__all__: list[str] = []
