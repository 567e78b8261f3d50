"""Internals of the package as a whole: lazy imports, records, the target machine, the Python side of Array."""
