"""Storage: machine code and programs that are kept, in the process, on disk and in files of the user's."""
