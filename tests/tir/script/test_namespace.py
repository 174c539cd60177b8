"""The names that `T` offers."""

import pytest

from tir import dtypes
from tir.intrinsics import INTRINSICS
from tir.script import ScriptError, namespace, parse
from tir.script import tir as T


def test_what_is_offered_is_the_dialect():
    public = {name for name in vars(T) if not name.startswith("_")}
    assert public == set(T.__all__) == {*namespace.__all__, "prim_func"}
    assert public >= {"Buffer", "axis", "block", "grid", "exp", "max", "prim_func", *dtypes.TABLE, *INTRINSICS}
    forms = {name: value for name, value in vars(T).items() if isinstance(value, namespace.Form)}
    aliases = {
        "Broadcast": "broadcast",
        "Ramp": "ramp",
        "sblock": "block",
        "sblock_attr": "block_attr",
        "sblock_alloc_buffer": "alloc_buffer",
    }
    assert {name: form.name for name, form in forms.items()} == {name: aliases.get(name, name) for name in forms}
    others = [getattr(T, name) for name in public - set(forms) - {"axis"}]
    assert all(isinstance(x, namespace.Type) or x.__module__.startswith("tir.") for x in others)


@pytest.mark.parametrize("name", ["te", "Form", "REFUSED", "inspect", "prim_fun"])
def test_no_other_name_is_read(name):
    assert not hasattr(T, name)
    with pytest.raises(ScriptError, match=rf"`T\.{name}` is not in the dialect"):
        parse(f"@T.prim_func\ndef f(A: T.Buffer((7,))):\n    A[0] = T.{name}(1.0)")
