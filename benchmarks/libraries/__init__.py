"""What do cuBLAS and cuSPARSE launch, and how long does it take? Raw material of their tables."""
