"""Descriptions of GPUs, a file for each maker."""
