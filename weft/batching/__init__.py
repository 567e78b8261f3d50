"""Vectorisation: values carry one more dimension than the function sees, and every operation works on all at once."""
