"""Tensor intrinsics: instructions that `tensorize` puts in the place of a loop nest, of CPUs and GPUs."""

INSTRUCTION = "instruction"  # the annotation of a loop whose nest is one instruction
