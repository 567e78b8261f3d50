"""What code generation knows of CPUs alone: their instructions, and LLVM's switches for them."""
