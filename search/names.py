"""The names of policies (`search`), models and spaces that users can give. What they name loads slowly."""

SEARCHES = ("evolution", "random")
MODELS = ("gbdt", "tile", "random", "none")
SPACES = ("full", "ansor", "limited")
SEED_LIMIT = 1 << 63  # seeds are below: what a column of the records can hold
