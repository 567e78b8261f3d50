"""Fusion: a program is divided into kernels, which become loop nests, and steps that are none."""
