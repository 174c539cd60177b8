"""`python -m tir.calibrate`: the door to the command line, `cli.calibrate`. (The function is `codegen.calibration.calibrate`.)"""

from cli.process import run_main

if __name__ == "__main__":
    run_main("cli.calibrate")
else:
    from cli.calibrate import *  # noqa: F403
