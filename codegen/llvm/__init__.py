"""The CPU backend: LLVM IR text with explicit vectors, compiled through llvmlite."""
