"""Requirements of steps: queries of `tir.analysis`, and refusals. `tir.verify` checks the requirements of every program."""
