"""What the operations of linear algebra mean, one file a family: typing, native routine, derivatives, NumPy oracle."""
