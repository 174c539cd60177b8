"""`python -m tir.puzzles` of an installed package: the door to the command line, `cli.puzzles`."""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.puzzles")
