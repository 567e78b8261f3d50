"""Operations on single elements: their scalar expressions, and the functions that those are made of."""
