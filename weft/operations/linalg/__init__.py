"""Operations of linear algebra, one file per family: typing, native routine, derivatives, NumPy oracle."""
