"""`python -m costmodel.dataset`: the door to `cli.dataset`."""

import sys

from cli.dataset import main

if __name__ == "__main__":
    sys.exit(main())
