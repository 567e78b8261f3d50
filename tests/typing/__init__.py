"""What type checkers, editors and ``help`` know of weft."""
