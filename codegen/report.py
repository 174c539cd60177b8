"""Analysis of a kernel's assembly: operations of its innermost loops, register spills, the share of the peak that they allow.

The numbers are read off LLVM's annotated x86 assembly, whose comments mark loops, the blocks of the IR and spills. The bounds
count how often each resource of the core is used in one iteration, as if all loads hit the first-level cache; they are
estimates, and upper bounds on speed rather than predictions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise, takewhile
from textwrap import dedent, indent
from typing import TYPE_CHECKING

from tir.ir import For, PrimFunc
from tir.script.printer import HEADER, expr_text, printed
from tir.traverse import loops, loops_to

if TYPE_CHECKING:
    from schedule.machine import Core


@dataclass(frozen=True)
class Counts:
    """Instruction counts by kind; an instruction that also reads memory counts as a load too."""

    instructions: int = 0
    fma: int = 0  # fused multiply-adds
    arithmetic: int = 0  # other vector operations, conversions and shuffles among them
    loads: int = 0  # of vectors, or of floats into vector registers
    broadcasts: int = 0  # loads of one element into all lanes
    gathers: int = 0
    stores: int = 0  # of vectors or floats, scatters among them
    spills: int = 0  # moves of vector registers to and from the stack; they are no loads or stores here
    calls: int = 0
    width: int = 0  # bits of the vectors of the multiply-adds, else of the widest vectors; 32 or 64 for scalar float code


@dataclass(frozen=True)
class Loop(Counts):
    """An innermost loop of the assembly, one iteration.

    `name` is the loop of the lowered program, `text` its header, `line` its line in `kernel.lowered.script()`; None and "" if
    unknown, and `source` its lines there. `code` is its assembly. `nest` has the loops around it and itself. `bounds` are
    (resource, cycles), most cycles first; all paths through the loop count. `share` is the part of the core's fused multiply-add
    peak that `cycles` allow, None without multiply-adds.
    """

    name: str | None = None
    text: str = ""
    line: int | None = None
    source: str = ""
    code: str = ""
    nest: tuple[str, ...] = ()
    label: str = ""
    depth: int = 0
    bounds: tuple[tuple[str, float], ...] = ()
    share: float | None = None

    @property
    def cycles(self) -> float:
        """Cycles an iteration takes at least."""
        return self.bounds[0][1] if self.bounds else 0.0

    @property
    def limit(self) -> str:
        """The resource that takes the most cycles."""
        return self.bounds[0][0] if self.bounds else ""


@dataclass(frozen=True)
class Report:
    """A kernel's innermost loops in the order of the assembly, and the counts of all code around them; `str()` is a table."""

    name: str
    mcpu: str
    loops: tuple[Loop, ...]
    elsewhere: Counts

    @property
    def spills(self) -> int:
        """Spills and reloads of vector registers in innermost loops."""
        return sum(loop.spills for loop in self.loops)

    def loop(self, name: str) -> Loop:
        """The innermost loop called `name` in the lowered program, the one with most multiply-adds if it was duplicated."""
        found = [loop for loop in self.loops if loop.name == name]
        if not found:
            known = ", ".join(sorted({loop.name for loop in self.loops if loop.name})) or "none"
            raise KeyError(f"{self.name} has no innermost loop {name!r}; it has {known}")
        return max(found, key=lambda loop: (loop.fma, loop.instructions))

    def listing(self, name: str | None = None) -> str:
        """The source of each innermost loop, and below it the loop's assembly; of the loop called `name` alone, if given.

        Raises KeyError for a name that no innermost loop has.
        """
        shown = self.loops if name is None else [self.loop(name)]
        return "\n\n".join(f"{loop.source or loop.label}\n{indent(loop.code, '    ')}" for loop in shown)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [HEADS]
        for loop in self.loops:
            line = "" if loop.line is None else str(loop.line)
            share = "" if loop.share is None else f"{loop.share:.0%}"
            text = "  " * max(0, loop.depth - 1) + (loop.text or loop.label)
            rows.append((line, text, *_cells(loop), f"{loop.cycles:.3g} ({loop.limit})", share))
        rows.append(("", "elsewhere", *_cells(self.elsewhere), "", ""))
        columns = [c for c in zip(*rows, strict=True) if c[0] in ("loop", "instr", "cycles") or not {*c[1:]} <= {"", "0"}]
        widths = [max(map(len, c)) for c in columns]
        padded = [[x.ljust(w) if c[0] == "loop" else x.rjust(w) for x in c] for c, w in zip(columns, widths, strict=True)]
        lines = [" ".join(r).rstrip() for r in zip(*padded, strict=True)]
        spills = f"{self.spills} spills in them" if self.spills else "no spills in them"
        loops = f"{len(self.loops)} innermost loop{'' if len(self.loops) == 1 else 's'}"
        title = f"{self.name} for {self.mcpu}: {loops}, {spills}"
        return "\n".join([title, lines[0], "-" * max(map(len, lines)), *lines[1:]])


COUNTED = {
    "instructions": "instr", "width": "bits", "fma": "fma", "arithmetic": "arith", "loads": "load", "broadcasts": "bcast",
    "gathers": "gather", "stores": "store", "spills": "spill", "calls": "call",
}  # fmt: skip
HEADS = ("line", "loop", *COUNTED.values(), "cycles", "peak")
MEMORY = ("tir.take", "tir.give")  # functions that fetch and return memory, not the kernel's work


def _cells(c: Counts) -> tuple[str, ...]:
    return tuple(str(getattr(c, name)) for name in COUNTED)


def report(kernel) -> Report:
    """The report of a kernel. Raises ValueError where it is not x86 code."""
    from .llvm.compile import assembly, machine

    triple = machine(kernel.target).triple
    if not re.match(r"x86_64|i[3-6]86", triple):
        raise ValueError(f"report reads x86 assembly, and this kernel is for {triple}")
    text = assembly(kernel.llvm_ir(), kernel.target, comments=True)
    return read_assembly(text, kernel.func.name, kernel.target, kernel.lowered, kernel.llvm_ir())


def read_assembly(asm: str, name: str, target, lowered: PrimFunc | None = None, llvm_ir: str = "") -> Report:
    """The report of annotated assembly; with the lowered program and its LLVM IR, its loops are known by name."""
    from .llvm.scratch import RELEASE

    core = target.machine.core
    program = {} if lowered is None else _known_loops(lowered, target, llvm_ir)
    found: list[Loop] = []
    rest: list[Instruction] = []
    for function, blocks in _functions(asm):
        if function in MEMORY or function.endswith(RELEASE):
            continue
        inner = {b.label: b for b in blocks if b.inner}
        bodies: dict[str, list[Instruction]] = {label: [] for label in inner}
        texts: dict[str, list[str]] = {label: [] for label in inner}
        for b in blocks:
            label = b.label if b.inner else b.header
            bodies.get(label, rest).extend(b.instructions)
            if label in texts:
                texts[label] += [f".L{b.label}:", *(f"    {i}" for i in b.instructions)]
        for label, body in bodies.items():
            counts = _counts(body)
            origin = re.match(r"loop\.\d+", inner[label].block)  # LLVM adds to the names of copies
            place = program.get((function, origin[0]), {}) if origin else {}
            bounds = _resource_cycles(body, core)
            cycles = bounds[0][1] if bounds else 0.0
            bits = sum(i.width for i in body if i.fma)
            share = bits / core.fma_bits / cycles if bits and cycles else None
            known = {"label": label, "depth": inner[label].depth, "code": "\n".join(texts[label])} | place
            found.append(Loop(**asdict(counts), bounds=bounds, share=share, **known))
    return Report(name, target.mcpu, tuple(found), _counts(rest))


def _known_loops(lowered: PrimFunc, target, llvm_ir: str) -> dict[tuple[str, str], dict]:
    """The loops of a lowered program by function and block of its LLVM IR, each as fields of a Loop."""
    from .llvm.emit import version_count
    from .llvm.values import ascii_name

    copies = version_count(lowered, target)
    heads: dict[str, list[tuple[str, str]]] = {}
    for function, block, variable in _heads(llvm_ir):
        heads.setdefault(variable, []).append((function, block))
    names: dict[str, list[For]] = {}
    for loop in loops(lowered):
        names.setdefault(ascii_name(loop.name), []).append(loop)
    lines = printed(lowered)
    first = HEADER.count("\n") + 4  # the import and two empty lines stand before
    found: dict[tuple[str, str], dict] = {}
    for variable, places in heads.items():
        known = names.get(variable, []) * copies
        if len({loop.name for loop in known}) != 1:
            continue
        # Guards make copies of loops; within a function they are emitted in the order of the program.
        ordered = len(known) == len(places) and len({function for function, _ in places}) == 1
        for place, loop in zip(places, known if ordered else known[:1] * len(places), strict=True):
            at = lines.spans[id(loop)][0]
            found[place] = {
                "name": loop.name,
                "text": f"for {loop.name} in range({expr_text(loop.extent)})",
                "line": at + first if ordered or len(known) == copies else None,
                "source": _with_body(lines.lines, at),
                "nest": tuple(s.name for s in loops_to(lowered, loop.name)),
            }
    return found


def _with_body(lines: list[str], at: int) -> str:
    """A line of a script and the lines below it that are indented more."""
    depth = len(lines[at]) - len(lines[at].lstrip())
    body = takewhile(lambda line: not line.strip() or len(line) - len(line.lstrip()) > depth, lines[at + 1 :])
    return dedent("\n".join([lines[at], *body])).rstrip()


def _heads(llvm_ir: str) -> Iterator[tuple[str, str, str]]:
    """The loops of a module: function, label of the first block, and name of the loop variable."""
    function = block = ""
    for line in llvm_ir.splitlines():
        if m := re.match(r'define .*?@"?([\w.$]+)"?\(', line):
            function = m[1]
        elif m := re.match(r"(loop\.\d+):", line):
            block = m[1]
        elif block and (m := re.match(r"\s*%(\w+)\.\d+ = phi i64 ", line)):
            yield function, block, m[1]
            block = ""


# --- Reading assembly -----------------------------------------------------------------------------------------------------


def _named(pattern: str) -> property:
    """A property that is True where the name of an instruction begins with `pattern`."""
    begins = re.compile(pattern).match
    return property(lambda instruction: begins(instruction.name) is not None)


@dataclass(frozen=True)
class Instruction:
    """One instruction in AT&T syntax: sources first, destination last."""

    name: str
    operands: tuple[str, ...]
    comment: str = ""

    def __str__(self) -> str:
        return f"{self.name} {', '.join(self.operands)}".rstrip()

    fma = _named(r"vfn?m(add|sub)")
    gather = _named(r"(?!.*prefetch).*gather")
    scatter = _named(r"(?!.*prefetch).*scatter")
    divides = _named(r"v?(div|sqrt)")
    multiplies = _named(r"v?mul|vfn?m(add|sub)")
    move = _named(r"v?mov[auhlsdn]|v?movdq|v?pbroadcast|vbroadcast")  # a vector: no unit computes anything
    jump = _named(r"j")
    call = _named(r"call")

    @property
    def memory(self) -> str | None:
        """The operand in memory, if it is accessed."""
        if self.name.startswith(("lea", "prefetch", "nop")) or self.jump or self.call:
            return None
        return next((o for o in self.operands if "(" in o), None)

    @property
    def stores(self) -> bool:
        reads_only = re.match(r"cmp[bwlq]|test|bt", self.name) is not None
        return self.memory is not None and "(" in self.operands[-1] and not reads_only

    @property
    def loads(self) -> bool:
        only_stores = self.name.startswith(("mov", "vmov", "vextract", "set", "vpmov", "vcvtps2ph", "vpextr")) or self.scatter
        return self.memory is not None and not (self.stores and only_stores)

    @property
    def vector(self) -> bool:
        return any(re.match(r"%[xyz]mm", o) for o in self.operands)

    @property
    def scalar(self) -> bool:
        """True where it works on one float of a vector register."""
        name = self.name.removeprefix("v")
        if name.startswith("cvt"):
            return re.search(r"p[sdh]", name) is None
        return re.search(r"s[sd]$", name) is not None and not name.startswith(("p", "broadcast"))

    @property
    def broadcast(self) -> bool:
        """True where it loads one element into all lanes."""
        return self.loads and (re.search("broadcast|ddup", self.name) is not None or "{1to" in (self.memory or ""))

    @property
    def spill(self) -> bool:
        return self.vector and re.search(r"Spill|Reload", self.comment) is not None

    @property
    def width(self) -> int:
        """Bits of the widest vector operand; of the element for scalar float operations."""
        if not self.vector:
            return 0
        if self.scalar:
            return 32 if re.search(r"ss$|ss2", self.name) else 64
        return max({"x": 128, "y": 256, "z": 512}[m] for o in self.operands for m in re.findall(r"%([xyz])mm", o))

    @property
    def elements(self) -> int:
        """The largest number of elements that a gather or scatter moves."""
        return max(1, self.width // (64 if re.search(r"(pd|qq|dq)$", self.name) else 32))


@dataclass(frozen=True)
class _BasicBlock:
    """A basic block: its label, the block of the IR it came from, and its innermost loop from LLVM's comments."""

    label: str
    block: str
    inner: bool  # the first block of an innermost loop
    header: str  # label of the first block of the loop it is in, if not itself
    depth: int
    instructions: tuple[Instruction, ...]


def _functions(asm: str) -> Iterator[tuple[str, list[_BasicBlock]]]:
    """The functions of annotated assembly, as their basic blocks."""
    for part in re.split(r"^(?=\S+:\s+# @)", asm, flags=re.MULTILINE)[1:]:
        function = re.match(r'"?([^":]+)"?:', part)
        body = part.split("# -- End function")[0]
        blocks = [_block(text) for text in re.split(r"^(?=\.LBB\w+:|# %bb\.)", body, flags=re.MULTILINE)[1:]]
        yield function[1] if function else "", blocks


def _block(text: str) -> _BasicBlock:
    first, *lines = text.splitlines()
    start = re.match(r"(?:\.L(BB\d+_\d+):|# (%bb\.\d+):)\s*(?:# %(.*))?", first)
    notes: list[str] = []
    while lines and re.match(r"\s+#", lines[0]):
        notes.append(lines.pop(0))
    about = "\n".join(notes)
    inner = re.search(r"This Inner Loop Header: Depth=(\d+)", about)
    own = re.search(r"This Loop Header: Depth=(\d+)", about)
    within = re.search(r"in Loop: Header=(BB\d+_\d+) Depth=(\d+)", about)
    depth = inner[1] if inner else own[1] if own else within[2] if within else 0
    label, block = (start[1] or start[2], (start[3] or "").strip()) if start else ("", "")
    header = "" if inner or own or not within else within[1]
    return _BasicBlock(label, block, inner is not None, header, int(depth), tuple(_instructions(lines)))


def _instructions(lines: Iterable[str]) -> Iterator[Instruction]:
    prefixes = ("lock", "rep", "repe", "repne", "{vex}", "{evex}", "notrack")
    for line in lines:
        code, _, comment = line.partition("#")
        words = code.split(None, 1)
        while words and words[0] in prefixes and len(words) > 1:
            words = words[1].split(None, 1)
        if words and not words[0].startswith(".") and not words[0].endswith(":"):
            operands = re.split(r",\s*(?![^(]*\))", words[1].strip()) if len(words) > 1 else []
            yield Instruction(words[0], tuple(operands), comment.strip())


def _counts(body: list[Instruction]) -> Counts:
    vectors = [i for i in body if i.vector]
    plain = [i for i in vectors if not i.spill]
    fma = [i for i in vectors if i.fma]
    return Counts(
        instructions=len(body),
        fma=len(fma),
        arithmetic=sum(not (i.fma or i.move or i.gather or i.scatter) for i in vectors),
        loads=sum(i.loads and not i.broadcast and not i.gather for i in plain),
        broadcasts=sum(i.broadcast for i in plain),
        gathers=sum(i.gather for i in vectors),
        stores=sum(i.stores for i in plain),
        spills=sum(i.spill for i in vectors),
        calls=sum(i.call for i in body),
        width=max((i.width for i in fma or vectors), default=0),
    )


# --- Estimating cycles ----------------------------------------------------------------------------------------------------


def _resource_cycles(body: list[Instruction], core: Core) -> tuple[tuple[str, float], ...]:
    """The cycles that each resource needs for one iteration, most first."""
    if not body:
        return ()
    multiplies = [i for i in body if i.vector and i.multiplies]
    computed = [i for i in body if i.vector and not i.move]
    reads = [i for i in body if i.loads]
    writes = [i for i in body if i.stores]
    scattered = sum(i.elements for i in body if i.gather or i.scatter)
    divisions = [i for i in body if i.vector and i.divides]
    compares = re.compile("cmp|test|add|sub|inc|dec|and").match
    fused = sum(bool(j.jump and compares(i.name) and not i.vector) for i, j in pairwise(body))  # compare and jump are one
    bounds = {
        "fma": max(len(multiplies) / 2, sum(max(128, i.width) for i in multiplies) / core.fma_bits),
        "vector": sum(max(128, i.width) for i in computed) / core.vector_bits,
        "divide": sum((8 if i.name.endswith("d") else 5) * max(1.0, i.width / 256) for i in divisions),
        "load": max((len(reads) + scattered) / core.reads, sum(_moved_bits(i) for i in reads) / core.load_bits),
        "store": max(float(len(writes)), sum(_moved_bits(i) for i in writes) / core.store_bits),
        "issue": (len(body) - fused + 2 * scattered) / core.issue,
        "latency": _latency(body, core),
    }
    ordered = sorted(bounds.items(), key=lambda b: -b[1])
    return tuple((name, cycles) for name, cycles in ordered if cycles > 0)


def _moved_bits(i: Instruction) -> int:
    """Bits that a load or store moves."""
    return 64 if i.broadcast or not i.vector else i.width


_MERGES = re.compile(r"vfn?m|vpdp|vdp|vpermi2|vpermt2|vpternlog|vpmadd52|(?!v|k|cvt|pshuf|sqrt)")  # the last operand is a source
_ARITHMETIC = re.compile(r"vfn?m|vpdp|v?(add|sub|mul|min|max|cvt|scalef|round|rndscale|dp)")  # of floats; others take a cycle
DIVISION_CYCLES = 13.0


def _latency(body: list[Instruction], core: Core) -> float:
    """Cycles of the longest chain of vector operations that each change one register further, such as a sum."""
    chains: dict[str, float] = {}
    begun_anew: set[str] = set()  # registers that an instruction writes without the value before
    for i in body:
        if not i.operands or not (changed := re.match(r"%[xyz]mm(\d+)", i.operands[-1])):
            continue
        register = changed[1]
        sources = {m for o in i.operands[:-1] for m in re.findall(r"%[xyz]mm(\d+)", o)}
        zero = re.match(r"v?p?xor", i.name) is not None and len({*i.operands}) == 1
        masked = "{" in i.operands[-1] and "{z}" not in i.operands[-1]
        merges = not i.move and _MERGES.match(i.name) is not None
        if zero or not (register in sources or merges or masked):
            begun_anew.add(register)
        delay = DIVISION_CYCLES if i.divides else core.latency if _ARITHMETIC.match(i.name) else 0.0 if i.move else 1.0
        chains[register] = chains.get(register, 0.0) + delay
    return max((cycles for register, cycles in chains.items() if register not in begun_anew), default=0.0)
