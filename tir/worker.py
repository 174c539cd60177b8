"""`python -m tir.worker`: the door to the command line, `cli.worker`."""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.worker")
else:
    from cli.worker import *  # noqa: F403
