"""Requirements of steps: questions to `tir.analysis`, and refusals. `tir.verify` has what must hold for any program."""
