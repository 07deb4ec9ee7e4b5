"""`2:4`: sparse tensor cores, on all columns or on those that tiles keep (TVW)."""

__all__: list[str] = []
