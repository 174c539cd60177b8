"""Populations: integer matrices with one row a candidate and one column a hole of a sketch.

`sample` draws rows, `mutate` changes them, `cpu` and `gpu` fit them to a target. `programs` gives cost models one program for
many rows: `symbolic` replays a sketch with symbolic integers, on a function with axes made longer by `enlarge`.
"""
