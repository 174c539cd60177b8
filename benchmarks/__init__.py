"""Benchmarks: each module here has a `run()` that yields results as dictionaries. `python -m benchmarks [NAME ...]` runs them."""
