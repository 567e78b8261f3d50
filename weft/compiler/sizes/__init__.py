"""Programs at other sizes than those they were compiled for."""
