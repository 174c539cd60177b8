"""`python -m tir.explore`: the door to the command line, `cli.explore`. (The function `tir.explore` is `explorer.explore`.)"""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.explore")
else:
    from cli.explore import *  # noqa: F403
