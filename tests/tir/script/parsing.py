"""Functions written as the text of their body."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Body:
    """A function written as the text of its body; it is well formed unless it is not `sound`."""

    text: str
    params: str = BUFFERS
    sound: bool = True

    def becomes(self, expected: str) -> PrimFunc:
        """Assert that the body prints as `expected`; returns the function."""
        func = parsed(self.text, self.params)
        lines = without_header(func.script()).splitlines()[2:]
        found = dedent("\n".join(lines))
        assert found == dedent(expected).strip("\n"), f"it became\n{found}"
        if self.sound:
            report = verify(func)
            assert report.ok, str(report)
        return func
