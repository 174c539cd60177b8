"""Names that a script can use."""

from __future__ import annotations

import keyword
import unicodedata


def is_script_name(name: str) -> bool:
    """True for a name that a script can use: an identifier in Python's normal form (`ﬁ` is read as `fi`), not a keyword."""
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name


MAX_NAME_LETTERS = 255  # of a user's name, which goes into generated names, lines of code and names of files


def need_name(name: object) -> str:
    """`name`, checked. ValueError where a script cannot use it, or it is longer than MAX_NAME_LETTERS."""
    if not isinstance(name, str) or not is_script_name(name):
        raise ValueError(f"a name must be a Python identifier, got {name!r}")
    if len(name) > MAX_NAME_LETTERS:
        raise ValueError(f"a name has at most {MAX_NAME_LETTERS} letters, got {len(name)}: {name[:20]}...")
    return name
