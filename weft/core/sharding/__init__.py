"""Sharding: meshes of devices, and how arrays are cut along the axes of one."""
