"""Array creation: arrays made of values, numbers in a row, diagonals and grids."""
