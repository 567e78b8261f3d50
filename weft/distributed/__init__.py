"""weft.distributed: one program on many processes, through MPI."""
