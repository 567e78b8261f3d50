"""Tracing: functions become programs; where in the user's code a value was made, and what leaks."""
