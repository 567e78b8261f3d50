"""What a program is: jaxprs, primitives, traces."""
