"""Reading StableHLO: from the text of a module to a program."""
