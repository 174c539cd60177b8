"""`python -m tir.tune`: the door to the command line, `cli.tune`. (The function `tir.autotune` is `search.tuning.autotune`.)"""

from runpy import run_module

from cli.tune import *  # noqa: F403

if __name__ == "__main__":
    run_module("cli.tune", run_name="__main__")
