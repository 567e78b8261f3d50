"""Calls of jitted functions: signatures, identities, the caches, ahead-of-time stages, devices."""
