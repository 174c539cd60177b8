"""`python -m tir.run`: the door to the command line, `cli.run`. (The function `tir.run` is `tir.interpreter.run`.)"""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.run")
else:
    from cli.run import *  # noqa: F403
