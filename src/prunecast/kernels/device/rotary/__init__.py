"""Kernel that applies rotary position embeddings in place."""
