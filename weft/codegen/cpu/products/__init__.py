"""The kernels of matrix products, as LLVM IR that a build makes object files of: packaging/product_kernels.py."""
