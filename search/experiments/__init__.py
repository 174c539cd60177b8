"""Experiments: policies of other systems, and studies and comparisons that time them side by side."""
