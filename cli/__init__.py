"""The command lines: `tune` is `python -m tir.tune`."""
