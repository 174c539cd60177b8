"""`python -m tir.worker`: the door to the command line, `cli.worker`."""

from cli.process import leave
from cli.worker import *  # noqa: F403
from cli.worker import main

if __name__ == "__main__":
    leave(main())
