"""Does a model that was pruned to a latency take that long on a GPU?"""
