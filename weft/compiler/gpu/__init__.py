"""What a plan is on a GPU: launches instead of steps, and cells of a grid that are blocks of threads."""
