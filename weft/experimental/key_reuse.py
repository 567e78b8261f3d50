"""weft.experimental.key_reuse: raise where a random key is used twice, with the option ``debug_key_reuse``.

Outside of ``jit`` and in every traced program, drawing from a key, splitting it or slicing an array of keys uses it up;
``fold_in``, ``key_data`` and comparisons do not, and ``random.clone`` gives a key that is meant to be used once more.

>>> import weft
>>> with weft.debug_key_reuse(True):
...     key = weft.random.key(0)
...     drawn = weft.random.normal(key)
...     weft.random.normal(weft.random.clone(key)) == drawn
Array(True, dtype=bool)
"""

from weft.errors import KeyReuseError

__all__ = ["KeyReuseError"]
