"""The tour: what weft does, shown on this machine with the programs of its documentation and a real data set."""
