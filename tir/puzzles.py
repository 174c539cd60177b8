"""The door to `puzzles`, and of `python -m tir.puzzles` to the command line, `cli.puzzles`."""

if __name__ == "__main__":
    from cli.process import run_main

    run_main("cli.puzzles")
else:
    from puzzles import *  # noqa: F403
