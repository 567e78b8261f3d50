"""Schedules: how a nest is run on a CPU, in which loops, lanes, tiles and parts, and what that costs."""
