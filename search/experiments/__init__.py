"""Experiments: policies of other systems, studies of searches, and comparisons of programs in turns."""
