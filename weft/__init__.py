"""weft: trace, compile, cache."""
