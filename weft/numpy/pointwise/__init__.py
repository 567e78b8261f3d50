"""Functions of single elements: ufuncs and their methods, choices between elements, functions made vectorised."""
