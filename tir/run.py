"""`python -m tir.run`: the door to the command line, `cli.run`. (The function `tir.run` is `tir.interpreter.run`.)"""

from cli.process import leave
from cli.run import *  # noqa: F403
from cli.run import main

if __name__ == "__main__":
    leave(main())
