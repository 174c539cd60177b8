"""Quantisation of networks of floats: `quantise` calibrates, writes integers as ONNX does, and reports the errors by layer."""
