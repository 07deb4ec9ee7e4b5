"""`2:4`: the kernel on sparse tensor cores, for all columns of A or for the columns that tiles keep (TVW)."""

__all__: list[str] = []
