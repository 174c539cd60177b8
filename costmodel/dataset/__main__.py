"""`python -m costmodel.dataset`: the door to `cli.dataset`."""

from cli.dataset import main
from cli.process import leave

if __name__ == "__main__":
    leave(main())
