"""Control flow: loops, scans and branches that carry programs."""
