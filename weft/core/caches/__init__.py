"""Caches: keys, digests of programs, the stores of the levels, and the memory that they may take."""
