"""What answers calls: traces, their machine code on this and other devices, the stages of ahead-of-time compilation."""
