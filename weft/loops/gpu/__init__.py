"""Loops on a GPU: spaces of threads and blocks, and the launches of products, sorts and loops."""
