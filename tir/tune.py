"""`python -m tir.tune`: the door to the command line, `cli.tune`. (The function `tir.autotune` is `search.tuning.autotune`.)"""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.tune")
else:
    from cli.tune import *  # noqa: F403
