"""Symbolic sizes: extents that have no number yet, or for which a program is compiled once for many."""
