"""The names of policies, models and spaces that users can give. The objects that they name load slowly."""

POLICIES = ("evolution", "random", "ansor", "template", "directions", "beam", "tree", "stochastic", "actions")
SPACELESS = ("stochastic", "actions")  # policies that make schedules by themselves, not from sketches
MODELS = ("pretrained", "gbdt", "pack-sum", "tile", "random", "none")
SPACES = ("full", "ansor", "limited")
BANDITS = ("confidence", "uniform", "thompson", "discounted", "gradient")  # of evolution: which sketch is tried next
CREDITS = ("adaptive", "fixed", "predicted")  # of evolution: which mutation is applied
SEED_LIMIT = 1 << 63  # seeds are below: what a column of the records can hold
