"""Linear algebra: what ``weft.numpy.linalg`` and products of arrays are made of."""
