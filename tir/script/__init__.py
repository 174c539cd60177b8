"""The script dialect: TensorIR's Python dialect, printed (`printer`)."""
