"""A simulator of PTX, the text that NVRTC makes of CUDA C, in numpy: a second opinion on kernels, which needs no GPU."""
