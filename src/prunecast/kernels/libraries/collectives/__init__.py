"""All-reduce and all-gather of a tensor over the GPUs of a node. Read first: `call.py`."""

__all__: list[str] = []
