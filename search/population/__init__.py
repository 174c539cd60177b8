"""Populations: integer matrices with one row a candidate and one column a hole of a sketch.

`sample` draws them, `mutate` changes them, `gpu` makes rows fit a device. `programs` gives cost models the program of all rows at
once: `symbolic` replays a sketch with numbers that remember their formulas, on the problem that `enlarge` makes of the function.
"""
