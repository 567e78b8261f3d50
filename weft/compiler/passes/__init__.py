"""Passes: rewrites of a program with the same bits, one after the other, before it is divided into kernels."""
