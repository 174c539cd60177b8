"""Functions written as the text of their body."""

from __future__ import annotations

from textwrap import dedent, indent

from tests.schedule.harness import round_trip, without_header
from tir.ir import PrimFunc
from tir.script import parse
from tir.verify import verify

BUFFERS = 'A: T.Buffer((7, 13), "float32"), B: T.Buffer((7, 13), "float32")'


def script(body: str, params: str = BUFFERS) -> str:
    """A function with this body, as a text that starts with the decorator."""
    return f"@T.prim_func\ndef main({params}):\n{indent(dedent(body).strip(chr(10)), '    ')}\n"


def parsed(body: str, params: str = BUFFERS) -> PrimFunc:
    """The function with this body, which prints and parses back."""
    func = parse(script(body, params))
    assert isinstance(func, PrimFunc)
    round_trip(func)
    return func


def becomes(body: str, expected: str, params: str = BUFFERS, sound: bool = True) -> PrimFunc:
    """Assert that a body prints as `expected`, and that the function is well formed; returns it."""
    func = parsed(body, params)
    lines = without_header(func.script()).splitlines()[2:]
    found = dedent("\n".join(lines))
    assert found == dedent(expected).strip("\n"), f"it became\n{found}"
    if sound:
        report = verify(func)
        assert report.ok, str(report)
    return func
