"""Examples: programs to read, run and change."""
