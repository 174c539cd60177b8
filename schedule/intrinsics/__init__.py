"""Tensor intrinsics: instructions that `tensorize` puts in the place of a loop nest, of CPUs and GPUs."""
