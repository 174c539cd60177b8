"""`python -m costmodel.dataset`: the door to `cli.dataset`."""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.dataset")
