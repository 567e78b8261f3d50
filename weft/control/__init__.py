"""Control flow: loops, scans and branches, whose primitives have jaxprs as parameters."""
