"""Arithmetic of vectors: what each operation on elements is in instructions, for every dtype."""
