"""`python -m tir.explore`: the door to the command line, `cli.explore`. (The function `tir.explore` is `explorer.explore`.)"""

from cli.explore import *  # noqa: F403
from cli.explore import main
from cli.process import leave

if __name__ == "__main__":
    leave(main())
