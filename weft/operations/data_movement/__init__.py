"""Operations that move elements and compute none: views, assembled arrays, slices, gathers and scatters."""
