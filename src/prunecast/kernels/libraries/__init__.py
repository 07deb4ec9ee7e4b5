"""Libraries of the vendor, predicted but not run: cuBLAS and cuSPARSE."""

__all__: list[str] = []
