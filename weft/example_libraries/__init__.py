"""weft.example_libraries: small libraries to learn from and to test with."""
