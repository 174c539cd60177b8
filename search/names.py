"""The names of policies, models and spaces for users, apart from the objects, which load slowly."""

POLICIES = (
    "evolution", "random", "ansor", "template", "directions", "beam", "tree", "pruner", "felix", "lfbo", "tlp", "reasoning",
    "plan",
)  # fmt: skip
MODELS = ("pretrained", "gbdt", "pack-sum", "tile", "random", "none")
SPACES = ("full", "ansor", "limited")
SEED_LIMIT = 1 << 63  # seeds are below it, the range of a column of the records
