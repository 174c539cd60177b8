"""The command lines: `tune` is `python -m tir.tune`, `run` is `python -m tir.run`."""
