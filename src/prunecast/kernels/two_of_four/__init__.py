"""`2:4`: the kernel on sparse tensor cores, for all columns or for those that tiles keep (TVW)."""

__all__: list[str] = []
