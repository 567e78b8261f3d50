"""Program to program: forward differentiation, linearisation, transposition, vectorisation."""
