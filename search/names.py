"""The names of policies (`search`), models and spaces that users can give. What they name loads slowly."""

SEARCHES = ("evolution", "random", "ansor", "template", "directions", "beam", "tree", "stochastic", "actions")
SPACELESS = ("stochastic", "actions")  # policies that make schedules by themselves, not from sketches
MODELS = ("gbdt", "pack-sum", "tile", "random", "none")
SPACES = ("full", "ansor", "limited")
SEED_LIMIT = 1 << 63  # seeds are below: what a column of the records can hold
