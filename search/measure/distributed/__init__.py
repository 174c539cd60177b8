"""Measuring on other machines: Dask distributed carries jobs, which are data, to agents that measure as this machine would.

`agent` runs in the workers, beside the device; `farm` and `measurer` in the coordinator, which searches and writes the records.
"""
