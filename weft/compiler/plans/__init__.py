"""Plans: instructions for the runtime, the memory that they use, and reports of both."""
