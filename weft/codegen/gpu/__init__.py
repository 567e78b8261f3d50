"""What code generation knows of GPUs alone: threads, their shared memory, and the text of PTX."""
