"""The text of PTX as functions of instructions in basic blocks (PTX ISA, chapters "Syntax" and "State Spaces, Types, and Variables")."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WIDTH = {"pred": 1, **{f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)}}  # bytes
ENDS = ("bra", "ret", "exit", "bar", "barrier")  # instructions after which the lanes of a block may part, or wait

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"\.(?:entry|func)\s+(?:\(([^)]*)\)\s*)?([\w$]+)\s*(?:\(([^)]*)\))?[^{;]*([{;])")
_VARIABLE = re.compile(
    r"\.(shared|global|const|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*\{([^}]*)\})?\s*;"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.(?!align)\w+\s+)*(?:\.align\s+\d+\s+)?)?([\w$]+)(?:\[(\d+)\])?"
)
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([^;]*);")
_LABEL = re.compile(r"([\w$]+):")
_PART = re.compile(r"\s*(\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,]+)")
_ADDRESS = re.compile(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+)\s*)?\]")

# A register, variable or label by its name; the bits of a constant; a place, name and offset; several of these.
Operand = str | int | tuple


@dataclass(frozen=True)
class Place:
    """An operand `[base + offset]`."""

    base: str
    offset: int


@dataclass(frozen=True)
class Instruction:
    """An instruction: the register that guards it ("" for none), its name, split at the dots, and its operands."""

    guard: str
    name: str
    parts: tuple[str, ...]
    operands: tuple
    text: str


@dataclass(frozen=True)
class Variable:
    """A variable outside of registers, and the values that it begins with. A count of 0 is that of dynamic shared memory."""

    space: str
    align: int
    width: int
    count: int
    values: tuple[int, ...]


@dataclass
class Function:
    """A function: its parameters and results with their bytes, the widths of its registers, its basic blocks and the labels of these."""

    params: dict[str, int]
    results: dict[str, int]
    widths: dict[str, int] = field(default_factory=dict)
    blocks: list[list[Instruction]] = field(default_factory=lambda: [[]])
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """The functions and variables of a text, by name."""

    functions: dict[str, Function]
    variables: dict[str, Variable]


def parse(text: str) -> Module:
    """The module of a text of PTX."""
    text = _COMMENT.sub("", text)
    variables = {}
    for space, align, kind, name, count, values in (m.groups() for m in _VARIABLE.finditer(text)):
        given = tuple(int(v, 0) for v in values.split(",")) if values else ()
        variables[name] = Variable(space, int(align or WIDTH[kind]), WIDTH[kind], 1 if count is None else int(count or 0), given)
    functions = {}
    for m in _FUNCTION.finditer(text):
        if m[4] == "{":
            function = Function(_sizes(m[3] or ""), _sizes(m[1] or ""))
            _fill(function, text[m.end() : _closing(text, m.end())])
            functions[m[2]] = function
    return Module(functions, variables)


def _sizes(params: str) -> dict[str, int]:
    return {name: WIDTH[kind] * int(count or 1) for kind, name, count in _PARAM.findall(params)}


def _closing(text: str, start: int) -> int:
    """The place of the brace that closes the one before `start`."""
    depth = 1
    for m in re.finditer("[{}]", text[start:]):
        depth += 1 if m[0] == "{" else -1
        if not depth:
            return start + m.start()
    raise ValueError("a brace of PTX is not closed")


def _fill(function: Function, body: str) -> None:
    for kind, names in _REGISTERS.findall(body):
        for name in names.split(","):
            stem, _, count = name.strip().rstrip(">").partition("<")
            function.widths |= {f"{stem}{n}": WIDTH[kind] for n in range(int(count))} if count else {stem: WIDTH[kind]}
    for statement in body.split(";"):
        rest = statement.strip().lstrip("{} \n\t")
        while m := _LABEL.match(rest):
            function.blocks.append([])
            function.labels[m[1]] = len(function.blocks) - 1
            rest = rest[m.end() :].strip().lstrip("{} \n\t")
        if not rest or rest[0] == ".":
            if rest.startswith(".param"):  # of a call
                function.params |= _sizes(rest)
            continue
        instruction = _instruction(" ".join(rest.split()))
        function.blocks[-1].append(instruction)
        if instruction.parts[0] in ENDS:
            function.blocks.append([])


def _instruction(text: str) -> Instruction:
    guard, rest = "", text
    if text[0] == "@":
        guard, rest = text[1:].split(None, 1)
    name, _, operands = rest.partition(" ")
    found = tuple(_operand(x.strip()) for x in _PART.findall(operands) if x.strip())
    return Instruction(guard, name, tuple(name.split(".")), found, text)


def _operand(text: str) -> Operand | Place:
    if text[0] in "{(":
        return tuple(_operand(x.strip()) for x in text[1:-1].split(",") if x.strip())
    if m := _ADDRESS.fullmatch(text):
        return Place(m[1], int(m[2] or "0", 0))
    if "|" in text:
        return tuple(_operand(x.strip()) for x in text.split("|"))
    if re.fullmatch(r"0[fFdD][0-9A-Fa-f]+", text):
        return int(text[2:], 16)
    if re.fullmatch(r"-?\d\w*", text):
        return int(text.rstrip("U"), 0)
    return text
