"""Memory access: how the lanes of vectors are loaded and stored, wherever their elements lie."""
