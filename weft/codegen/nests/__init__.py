"""Nests: the loops of each kind of nest as LLVM text, with their tiles, reductions, scans and masks."""
