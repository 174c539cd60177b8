"""`python -m tir.run`: the door to the command line, `cli.run`. (The function `tir.run` is `tir.interpreter.run`.)"""

import sys

from cli.run import *  # noqa: F403
from cli.run import main

if __name__ == "__main__":
    sys.exit(main())
