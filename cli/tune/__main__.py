"""`python -m tir.tune`."""

import os
import sys
from contextlib import suppress

from . import INTERRUPTED, main

if __name__ == "__main__":
    status = main()
    if status >= INTERRUPTED:  # a thread may still be at work, and nobody waits for what it does
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)
