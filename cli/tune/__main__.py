"""`python -m cli.tune`."""

from ..process import run_main

if __name__ == "__main__":
    run_main("cli.tune")
