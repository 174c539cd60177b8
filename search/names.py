"""The names that `autotune` and the command line take, without what they stand for, which loads slowly."""

SEARCHES = ("evolution", "random")
MODELS = ("gbdt", "tile", "random", "none")
SPACES = ("full", "ansor", "limited")
SEED_LIMIT = 1 << 63  # seeds are below: what a column of the records can hold
