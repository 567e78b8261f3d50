"""Calls of jitted functions: signatures, identities of functions, the caches, ahead-of-time stages, devices."""
