"""Differentiation: jvp, linearisation, transposition; custom rules, checkpoints, derivatives of loops."""
