"""Vectorisation (``vmap``): values have one more dimension than the function sees; operations work on all elements."""
