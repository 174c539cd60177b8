"""Measurement on other machines: Dask distributed carries jobs, which are data, to agents with a `LocalMeasurer` each.

`agent` runs in the workers, beside the device; `farm` and `measurer` in the coordinator, which searches and writes the records.
"""
