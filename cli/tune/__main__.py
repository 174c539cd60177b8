"""`python -m tir.tune`."""

from ..process import leave
from . import main

if __name__ == "__main__":
    leave(main())
