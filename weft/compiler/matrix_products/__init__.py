"""Matrix products: their loops, the steps that run them, and the kernels that ride on them."""
