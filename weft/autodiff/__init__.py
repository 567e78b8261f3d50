"""Differentiation: forward, linearised, transposed; custom rules, rematerialisation, derivatives of loops."""
