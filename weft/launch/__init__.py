"""weft.launch: programs written for JAX run on weft as they are, where their user asks for it.

Nothing here is loaded by ``import weft``. Three ways in: the command ``weft run script.py``, ``weft.install_as_jax()``
at the top of a program, ``-p weft.pytest_as_jax`` for pytest. They change the process for all of its code, and say so:
``jax`` and ``jaxlib`` are weft's modules there, in child processes too.
"""
