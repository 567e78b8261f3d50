"""Operations on windows of an array: convolutions, reductions of windows, resampling."""
