"""Routines: loops with a small state as native functions on values in registers."""
