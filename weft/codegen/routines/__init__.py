"""Routines as LLVM functions: programs on scalars and small arrays in registers."""
