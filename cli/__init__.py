"""The command lines: `python -m tir.tune`, `tir.run`, `tir.explore`, `tir.worker` and `costmodel.dataset`."""
