"""Subscripts: ``x[idx]`` and ``x.at[idx]``, and functions that take or put elements by their positions."""
