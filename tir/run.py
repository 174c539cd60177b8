"""`python -m tir.run`: the door to the command line, `cli.run`. (The function `tir.run` is `tir.interpreter.run`.)"""

from runpy import run_module

from cli.run import *  # noqa: F403

if __name__ == "__main__":
    run_module("cli.run", run_name="__main__")
