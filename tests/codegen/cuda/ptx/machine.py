"""A block, or several, of a grid of threads that execute PTX: a lane an element of an array.

The lanes with the least number of a basic block run, and the others wait for them: lanes that a branch parts meet again where it
ends, since NVRTC writes blocks in order. What the hardware may do in another order is a race, and trapped (`memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arithmetic import ELEMENTWISE, TYPES, operand_types, spoils
from .memory import Memory, PTXError, stamps
from .text import WIDTH, Function, Instruction, Module, Place

ALL = slice(None)
Lanes = slice | np.ndarray
WARP, GROUP, DONE = 32, 128, 1 << 30
SPACE_BITS = 40  # an address is the number of its memory, from 1, and an offset of so many bits
SHARED, LOCAL = 1 << 20, (1 << 20) + 1
UNSIGNED = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}


@dataclass
class Frame:
    """Registers and parameters of a function that runs. `undefined` has the lanes for which nothing wrote a register, or something
    that nothing wrote: NVRTC reads such ones where the result is not used. `sums` are the registers of products of warpgroups,
    each with the lanes that wrote it since their last fence, and those in which a product goes on."""

    function: Function
    params: dict[str, np.ndarray]
    registers: dict[str, np.ndarray] = field(default_factory=dict)
    undefined: dict[str, np.ndarray] = field(default_factory=dict)
    sums: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


def bytes_of(value: np.ndarray) -> np.ndarray:
    """The bytes of each element, a row each."""
    return np.ascontiguousarray(value).view(np.uint8).reshape(len(value), -1)


def smallest_access(module: Module) -> int:
    """The bytes of the narrowest access to memory of all functions."""
    found = [16]
    for i in (i for f in module.functions.values() for block in f.blocks for i in block):
        if i.parts[0] in ("ld", "st"):
            space, dtype, count = _access(i)
            found += [dtype.itemsize * count] if space != "param" else []
        elif i.parts[:3] in (("cp", "async", "ca"), ("cp", "async", "cg")):
            found.append(i.operands[2])
    return min(found)


class Machine:
    """Lanes of the blocks of these numbers (x fastest), which share global memories and have shared and local ones of their own."""

    def __init__(
        self, module: Module, buffers: list[Memory], grid: tuple, block: tuple, numbers: np.ndarray, dynamic: int, cell: int
    ):
        self.module, self.buffers = module, buffers
        threads = int(np.prod(block))
        self.count = threads * len(numbers)
        self.thread, self.block = np.tile(np.arange(threads), len(numbers)), np.repeat(np.arange(len(numbers)), threads)
        self.number, self.epoch = np.repeat(numbers, threads), np.zeros(self.count, np.int64)
        self.stamps = stamps(self.number, self.epoch, self.thread)
        self.lane = self.thread % WARP
        self.warp_start = np.arange(self.count) - self.lane
        place, tile = self.thread, self.number
        self.special: dict[str, np.ndarray] = {}
        for n, axis in enumerate("xyz"):
            self.special |= {f"%tid.{axis}": place % block[n], f"%ctaid.{axis}": tile % grid[n]}
            self.special |= {f"%ntid.{axis}": np.full(self.count, block[n]), f"%nctaid.{axis}": np.full(self.count, grid[n])}
            place, tile = place // block[n], tile // grid[n]
        self.special = {name: value.astype(np.uint32) for name, value in self.special.items()}
        self.special["%laneid"] = self.lane.astype(np.uint32)
        self.symbols: dict[str, tuple[int, int]] = {}  # number of the memory and offset
        sizes = {"shared": 0, "local": 0}
        for name, v in sorted(module.variables.items(), key=lambda item: item[1].count == 0):  # dynamic memory comes last
            if v.space in sizes:
                start = -(-sizes[v.space] // v.align) * v.align
                self.symbols[name] = (SHARED if v.space == "shared" else LOCAL, start)
                sizes[v.space] = start + (v.width * v.count or dynamic)
            else:
                values = np.array(v.values, UNSIGNED[v.width])
                buffers.append(Memory(name, values.nbytes, v.width, data=values))
                self.symbols[name] = (len(buffers), 0)
        padded = -(-sizes["shared"] // 16) * 16  # NVRTC may load the whole vector of which it needs a part
        self.shared = Memory("shared memory", padded, cell, len(numbers))
        self.local = Memory("local memory", sizes["local"], cell, self.count)
        self.copies: list[tuple[np.ndarray, np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]] = []
        self.groups, self.products = (np.zeros(self.count, np.int64) for _ in range(2))  # committed, by lane
        self.going: list[tuple[np.ndarray, int, tuple[str, ...], np.ndarray]] = []  # products: lanes, group, registers, cells
        self.plans: dict[int, tuple[Callable, list[np.dtype]]] = {}
        self.now: Instruction | None = None

    # --- control: "Control Flow Instructions", "Parallel Synchronization: bar" --------------------------------------------

    def launch(self, name: str, params: list[np.ndarray]) -> None:
        """Run a kernel with these parameters, each as its bytes in one row."""
        function = self.module.functions[name]
        try:
            self.run(Frame(function, dict(zip(function.params, params, strict=False))), np.arange(self.count))
            if self.going:
                raise PTXError("a thread ends with products that it has not waited for")
            if self.copies:
                raise PTXError("a thread ends with copies that it has not waited for")
        except PTXError as error:
            raise PTXError(f"{name}: {error}\n  at {self.now.text if self.now else ''}") from None

    def run(self, frame: Frame, lanes: np.ndarray) -> None:
        for i in (i for block in frame.function.blocks for i in block if i.parts[:2] == ("wgmma", "mma_async")):
            frame.sums |= {name: (np.ones(self.count, bool), np.zeros(self.count, bool)) for name in i.operands[0]}
        pc = np.full(self.count, DONE)
        pc[lanes] = 0
        waiting = np.zeros(self.count, bool)
        while True:
            ready = (pc != DONE) & ~waiting
            if ready.any():
                at = int(pc[ready].min())
                self.basic_block(frame, at, np.flatnonzero(ready & (pc == at)), pc, waiting)
            elif waiting.any():
                self.release(pc, waiting)
            else:
                return

    def release(self, pc: np.ndarray, waiting: np.ndarray) -> None:
        """All threads of each block are at one barrier, which they pass."""
        here = np.flatnonzero(waiting)
        places = np.full(self.block.max() + 1, -1)
        places[self.block[here]] = pc[here]
        if (places[self.block[here]] != pc[here]).any():
            raise PTXError("threads of one block wait at different barriers")
        if (~waiting & (places[self.block] >= 0)).any():
            raise PTXError("some threads wait at a barrier that others of their block do not reach")
        self.epoch[here] += 1
        self.stamps = stamps(self.number, self.epoch, self.thread)
        waiting[here] = False

    def basic_block(self, frame: Frame, at: int, chosen: np.ndarray, pc: np.ndarray, waiting: np.ndarray) -> None:
        lanes: Lanes = ALL if len(chosen) == self.count else chosen
        pc[chosen] = at + 1 if at + 1 < len(frame.function.blocks) else DONE
        for instruction in frame.function.blocks[at]:
            self.now = instruction
            active = lanes
            if instruction.guard:
                holds = self.read(frame, instruction.guard.lstrip("!"), TYPES["pred"], lanes) ^ (instruction.guard[0] == "!")
                if not holds.any():
                    continue
                active = lanes if holds.all() else chosen[holds]
            match instruction.parts[0]:
                case "bra":
                    pc[active] = frame.function.labels[instruction.operands[0]]
                case "ret" | "exit":
                    pc[active] = DONE
                case "bar" | "barrier":
                    if instruction.operands != (0,):
                        raise PTXError("only barriers 0 of all threads are known")
                    waiting[active] = True
                case name if name in ELEMENTWISE and "cc" not in instruction.parts:
                    self.elementwise(frame, instruction, active)
                case name if name in INSTRUCTIONS:
                    INSTRUCTIONS[name](self, frame, instruction, active)
                case _:
                    raise PTXError(f"the instruction `{instruction.name}` is not known")

    # --- registers: "Register State Space" --------------------------------------------------------------------------------

    def read(self, frame: Frame, operand: Any, dtype: np.dtype, lanes: Lanes) -> np.ndarray:
        """An operand as this type, of the lanes, or of one element for all."""
        value, undefined = self.peek(frame, operand, dtype, lanes)
        if undefined is not None and undefined.any():
            raise PTXError(f"register {operand} is read, and nothing wrote it")
        return value

    def peek(self, frame: Frame, operand: Any, dtype: np.dtype, lanes: Lanes) -> tuple[np.ndarray, np.ndarray | None]:
        """An operand, and the lanes for which it is undefined, if any."""
        if isinstance(operand, int):
            return np.array([operand & ((1 << 8 * dtype.itemsize) - 1)], UNSIGNED[dtype.itemsize]).view(dtype), None
        if operand in frame.sums and frame.sums[operand][1][lanes].any():
            raise PTXError(f"register {operand} is read while a product goes on in it, for which nobody waited")
        if operand in frame.function.widths:
            if operand not in frame.registers:
                self.write(frame, operand, np.zeros(0, UNSIGNED[frame.function.widths[operand]]), np.arange(0))
            raw, undefined = frame.registers[operand][lanes], frame.undefined.get(operand)
            undefined = None if undefined is None else undefined[lanes]
            return raw.view(dtype) if raw.itemsize == dtype.itemsize else raw.astype(UNSIGNED[dtype.itemsize]).view(
                dtype
            ), undefined
        if operand in self.special:
            return self.special[operand][lanes].astype(UNSIGNED[dtype.itemsize]).view(dtype), None
        if operand in self.symbols:
            number, offset = self.symbols[operand]
            return np.array([offset if number == SHARED else (number << SPACE_BITS) + offset], np.uint64).astype(dtype), None
        raise PTXError(f"the operand `{operand}` is not known")

    def write(self, frame: Frame, name: str, value: np.ndarray, lanes: Lanes, undefined: np.ndarray | None = None) -> None:
        """A register, extended by zeros, or the sign of a signed type, where it is wider."""
        if name == "_":
            return
        if name in frame.sums:
            changed, going = frame.sums[name]
            if going[lanes].any():
                raise PTXError(f"register {name} is written while a product goes on in it, for which nobody waited")
            changed[lanes] = True
        width = frame.function.widths[name]
        if value.dtype != bool:
            if value.itemsize > width:
                raise PTXError(f"register {name} is too narrow")
            value = value.astype(f"{value.dtype.kind}{width}") if value.itemsize < width else value
            value = np.ascontiguousarray(value).view(UNSIGNED[width])
        if name not in frame.registers:
            frame.registers[name] = np.zeros(self.count, value.dtype)
            frame.undefined[name] = np.ones(self.count, bool)
        frame.registers[name][lanes] = value
        if undefined is not None:
            frame.undefined.setdefault(name, np.zeros(self.count, bool))[lanes] = undefined
        elif name in frame.undefined:
            frame.undefined[name][lanes] = False
            if not frame.undefined[name].any():
                del frame.undefined[name]

    def elementwise(self, frame: Frame, i: Instruction, lanes: Lanes) -> None:
        target, *sources = i.operands
        if i.parts[0] == "mov" and (isinstance(target, tuple) or isinstance(sources[0], tuple)):
            self.pack(frame, i, lanes)
            return
        if id(i) not in self.plans:
            self.plans[id(i)] = ELEMENTWISE[i.parts[0]], operand_types(i.parts, len(sources))
        compute, types = self.plans[id(i)]
        values, undefined = zip(*(self.peek(frame, s, t, lanes) for s, t in zip(sources, types, strict=True)), strict=True)
        try:
            result = compute(i.parts, *values)
        except (KeyError, NotImplementedError, TypeError) as error:
            raise PTXError(f"the instruction `{i.name}` is not known ({error})") from error
        spoiled = (
            None if all(u is None for u in undefined) else spoils(i.parts, values, [False if u is None else u for u in undefined])
        )
        self.write(frame, target, result, lanes, spoiled)

    def pack(self, frame: Frame, i: Instruction, lanes: Lanes) -> None:
        """`mov` of several registers into one, or the other way round, the lowest bits first."""
        target, source = i.operands
        sources, targets = (x if isinstance(x, tuple) else (x,) for x in (source, target))
        width = WIDTH[i.parts[-1]] // len(sources)
        rows, undefined = self.joined(frame, sources, UNSIGNED[width], lanes)
        self.parted(frame, targets, rows, undefined, UNSIGNED[WIDTH[i.parts[-1]] // len(targets)], lanes)

    def joined(self, frame: Frame, names: Sequence, dtype: np.dtype, lanes: Lanes) -> tuple[np.ndarray, np.ndarray | None]:
        """The bytes of operands, one after the other, a row a lane; and which of them are undefined, if any."""
        count = len(np.arange(self.count)[lanes])
        values, undefined = zip(*(self.peek(frame, name, dtype, lanes) for name in names), strict=True)
        rows = np.concatenate([np.broadcast_to(bytes_of(v), (count, dtype.itemsize)) for v in values], axis=1)
        if all(u is None for u in undefined):
            return rows, None
        return rows, np.repeat(
            np.stack([np.zeros(count, bool) if u is None else u for u in undefined], 1), dtype.itemsize, axis=1
        )

    def parted(
        self, frame: Frame, names: Sequence, rows: np.ndarray, undefined: np.ndarray | None, dtype: np.dtype, lanes: Lanes
    ) -> None:
        """Write registers, each of which has an element of the rows."""
        values = np.ascontiguousarray(rows).view(dtype)
        for n, name in enumerate(names):
            some = None if undefined is None else undefined[:, n * dtype.itemsize : (n + 1) * dtype.itemsize].any(1)
            self.write(frame, name, values[:, n], lanes, some)

    # --- memory: "State Spaces", "ld", "st", "cvta" -----------------------------------------------------------------------

    def places(self, frame: Frame, place: Place, space: str, lanes: Lanes, nbytes: int) -> tuple[Memory, np.ndarray]:
        """The memory and the places in it that lanes address."""
        of_lanes = np.arange(self.count)[lanes]
        shared = space == "shared"
        if place.base in self.symbols:
            number, start = self.symbols[place.base]
            numbers, offset = np.full(len(of_lanes), number), np.full(len(of_lanes), start + place.offset)
        else:
            width = frame.function.widths.get(place.base, 8)
            address = self.read(frame, place.base, np.dtype(f"i{width}"), lanes).astype(np.int64) + place.offset
            numbers, offset = address >> SPACE_BITS, address & ((1 << SPACE_BITS) - 1)
            if shared:
                numbers, offset = np.full(len(of_lanes), SHARED), np.where(numbers == SHARED, offset, address)
        number = int(numbers[0])
        if (numbers != number).any():
            raise PTXError("lanes of one instruction address different arrays")
        if number == SHARED:
            return self.shared, self.shared.at(offset, nbytes, self.block[of_lanes])
        if number == LOCAL:
            return self.local, self.local.at(offset, nbytes, of_lanes)
        if not 0 < number <= len(self.buffers):
            raise PTXError(f"the address {(number << SPACE_BITS) + int(offset[0]):#x} is in no array")
        return self.buffers[number - 1], self.buffers[number - 1].at(offset, nbytes)


def _access(i: Instruction) -> tuple[str, np.dtype, int]:
    """The space of a load or store ("" for a generic address), and the type and number of its elements."""
    names = [p.partition("::")[0] for p in i.parts]
    space = next((p for p in names if p in ("param", "global", "shared", "local", "const")), "")
    return space, TYPES[i.parts[-1]], next((int(p[1:]) for p in names if p in ("v2", "v4", "v8")), 1)


def _load(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    targets, place = i.operands
    space, dtype, count = _access(i)
    nbytes = dtype.itemsize * count
    if space == "param":
        rows = frame.params[place.base][:, place.offset : place.offset + nbytes]
        rows, undefined = rows if len(rows) == 1 else rows[lanes], None
    else:
        memory, at = m.places(frame, place, space, lanes, nbytes)
        rows, undefined = memory.load(at, nbytes, m.stamps[lanes])
    m.parted(frame, targets if isinstance(targets, tuple) else (targets,), rows, undefined, dtype, lanes)


def _store(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    place, sources = i.operands
    space, dtype, _ = _access(i)
    rows, undefined = m.joined(frame, sources if isinstance(sources, tuple) else (sources,), dtype, lanes)
    if space == "param":
        held = frame.params.setdefault(place.base, np.zeros((m.count, frame.function.params.get(place.base, 8)), np.uint8))
        held[lanes, place.offset : place.offset + rows.shape[1]] = rows
        return
    memory, at = m.places(frame, place, space, lanes, rows.shape[1])
    if undefined is not None and undefined.any() and memory in m.buffers:
        raise PTXError(f"a value that nothing wrote is stored in {memory.name}")
    memory.store(at, rows, m.stamps[lanes], undefined)


def _to_space(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    """`cvta`: addresses are generic but for those of shared memory, which are offsets."""
    target, source = i.operands
    value = m.read(frame, source, TYPES[i.parts[-1]], lanes)
    if "shared" in i.parts:
        window = np.array(SHARED << SPACE_BITS).astype(value.dtype)
        value = value - window if "to" in i.parts else value + window
    m.write(frame, target, value, lanes)


def _call(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    """`call`: parameters and results go by their order."""
    results = i.operands[0] if isinstance(i.operands[0], tuple) else ()
    name, *rest = i.operands[1:] if results else i.operands
    function = m.module.functions[name]
    given = rest[0] if rest else ()
    inner = Frame(function, dict(zip(function.params, (frame.params[g] for g in given), strict=False)))
    for result, size in function.results.items():
        inner.params[result] = np.zeros((m.count, size), np.uint8)
    m.run(inner, np.arange(m.count)[lanes])
    for outer, result in zip(results, function.results, strict=True):
        frame.params[outer] = inner.params[result]


# --- asynchronous copies: "Data Movement: cp.async", "cp.async.commit_group", "cp.async.wait_group" -----------------------


def _copy(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    if i.parts[2] == "commit_group":
        m.groups[lanes] += 1
    elif i.parts[2] in ("wait_group", "wait_all"):
        _wait(m, np.arange(m.count)[lanes], i.operands[0] if i.operands else -1)
    elif i.parts[2] in ("ca", "cg"):
        _issue(m, frame, i, lanes)
    else:
        raise PTXError(f"the instruction `{i.name}` is not known")


def _issue(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    to, origin, nbytes, *read = i.operands
    who = np.arange(m.count)[lanes]
    target, at = m.places(frame, to, "shared", lanes, nbytes)
    size = np.broadcast_to(m.read(frame, read[0], TYPES["u32"], lanes), who.shape) if read else np.full(len(who), nbytes)
    if not np.isin(size, (0, nbytes)).all():
        raise PTXError("a part of a copy is of zeros")
    there = size > 0
    if there.any():
        source, origins = m.places(frame, origin, "global", who[there], nbytes)
    target.expect(at, nbytes, m.stamps[lanes])

    def rows(waits: np.ndarray) -> np.ndarray:
        """The bytes, read when they are waited for, of the lanes that wait."""
        result = np.zeros((len(who), nbytes), np.uint8)
        if (waits & there).any():
            result[waits & there] = source.load(origins[waits[there]], nbytes, m.stamps[who[waits & there]])[0]
        return result[waits]

    m.copies.append((who, at, m.groups[who], rows))


def _wait(m: Machine, who: np.ndarray, latest: int) -> None:
    """Copies of these lanes arrive, but for those of the latest groups."""
    asks = np.zeros(m.count, bool)
    asks[who] = True
    copies, m.copies = m.copies, []
    for lanes, at, groups, rows in copies:
        waits = asks[lanes] & (groups < m.groups[lanes] - latest)
        if waits.any():
            m.shared.arrive(at[waits], rows(waits), m.stamps[lanes[waits]])
        if not waits.all():
            left = np.flatnonzero(~waits)
            m.copies.append((lanes[left], at[left], groups[left], _part(rows, left, len(lanes))))


def _part(rows: Callable, left: np.ndarray, count: int) -> Callable:
    def of_those(waits: np.ndarray) -> np.ndarray:
        whole = np.zeros(count, bool)
        whole[left[waits]] = True
        return rows(whole)

    return of_those


# --- instructions of a warp: "shfl.sync", "ldmatrix", "mma" ---------------------------------------------------------------


def _warps(m: Machine, lanes: Lanes) -> np.ndarray:
    """The lanes as whole warps, a row each."""
    who = np.arange(m.count)[lanes]
    if len(who) % WARP or (who.reshape(-1, WARP) != m.warp_start[who[::WARP], None] + np.arange(WARP)).any():
        raise PTXError("lanes of a warp part at an instruction of the whole warp")
    return who.reshape(-1, WARP)


def _shuffle(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    targets, source, b, c, mask = i.operands
    who = np.arange(m.count)[lanes]
    value, undefined = m.peek(frame, source, TYPES["u32"], lanes)
    b, c, mask = (m.read(frame, x, TYPES["u32"], lanes).astype(np.int64) for x in (b, c, mask))
    lane, clamp, segment = m.lane[who], c & 31, c >> 8 & 31
    least, most = lane & segment, (lane & segment) | (clamp & ~segment)
    place, inside = {
        "up": lambda: (lane - b, lane - b >= most), "down": lambda: (lane + b, lane + b <= most),
        "bfly": lambda: (lane ^ b, (lane ^ b) <= most), "idx": lambda: (least | (b & ~segment), (least | (b & ~segment)) <= most),
    }[i.parts[2]]()  # fmt: skip
    other = m.warp_start[who] + np.where(inside, place, lane)
    here, spoiled, held = np.zeros(m.count + WARP, bool), np.zeros(m.count, bool), np.zeros(m.count, np.uint32)
    here[who], held[who], spoiled[who] = True, value, False if undefined is None else undefined
    named = np.broadcast_to(mask, who.shape)
    wanted = (named[:, None] >> np.arange(WARP) & 1).astype(bool)
    exists = (m.thread[who] - lane)[:, None] + np.arange(WARP) < m.thread.max() + 1
    every = here[m.warp_start[who][:, None] + np.arange(WARP)] & exists
    if not every[wanted].all() or not (named >> lane & 1).all() or not (named >> (other - m.warp_start[who]) & 1).all():
        raise PTXError("lanes that a shuffle names are not there")
    result, ok = targets if isinstance(targets, tuple) else (targets, "_")
    m.write(frame, result, held[other], lanes, spoiled[other] if spoiled.any() else None)
    m.write(frame, ok, np.broadcast_to(inside, who.shape), lanes)


def _load_matrices(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    """Lane 8 n + r names row r of matrix n; lane l gets elements 2 (l % 4) and the next of row l / 4, or of column l / 4."""
    targets, place = i.operands
    count, warps = len(targets), _warps(m, lanes)
    if "m8n8" not in i.parts or i.parts[-1] != "b16":
        raise PTXError(f"the instruction `{i.name}` is not known")
    who = warps[:, : 8 * count].reshape(-1)
    memory, at = m.places(frame, place, "shared", who, 16)
    rows, undefined = memory.load(at, 16, m.stamps[who])

    def dealt(elements: np.ndarray) -> np.ndarray:
        """Two elements for each matrix (warps * lanes, matrices * 2)."""
        matrices = elements.reshape(-1, count, 8, 8)
        matrices = matrices.swapaxes(2, 3) if "trans" in i.parts else matrices
        return matrices.reshape(-1, count, WARP, 2).swapaxes(1, 2).reshape(-1, count * 2)

    spoiled = None if undefined is None else np.repeat(dealt(undefined.reshape(-1, 2).any(1)), 2, axis=1)
    m.parted(frame, targets, np.ascontiguousarray(dealt(rows.view(np.uint16))).view(np.uint8), spoiled, TYPES["u32"], lanes)


def _factor(elements: np.ndarray, high: int, each: int) -> np.ndarray:
    """The matrix of `high` x 8 rows that the lanes of warps hold (warps, lanes, elements), `each` of them beside one another.
    A right factor is such a matrix of 8 rows, transposed."""
    parts = elements.reshape(len(elements), 8, 4, -1, high, each)
    return parts.transpose(0, 4, 1, 3, 2, 5).reshape(len(elements), 8 * high, -1)


def _values(rows: np.ndarray, kind: str) -> np.ndarray:
    """The elements of bytes, as doubles."""
    if kind == "bf16":
        return (rows.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return rows.view(TYPES["f32" if kind == "tf32" else kind]).astype(np.float64)


def _multiply_matrices(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    """`mma`, m16n8 and m8n8k4: lane l has row l / 4 of the left factor and of the result, and column l / 4 of the right factor.

    Products are exact and summed in double precision, and the sum is rounded once, as the manual allows any order.
    """
    warps = len(_warps(m, lanes))
    shape, (to, left, right, addend) = i.parts[3], i.parts[-4:]
    if shape not in ("m16n8k16", "m16n8k8", "m16n8k32", "m8n8k4") or i.parts[4:6] != ("row", "col") or "satfinite" in i.parts:
        raise PTXError(f"the instruction `{i.name}` is not known")
    high, word = (1, TYPES["b64"]) if shape == "m8n8k4" else (2, TYPES["b32"])
    targets, *sources = i.operands
    (a, bad_a), (b, bad_b), (c, bad_c) = (m.joined(frame, x, word, lanes) for x in sources)
    if left == "tf32" and any((x.view(np.uint32) & np.uint32(0x1FFF)).any() for x in (a, b)):
        raise PTXError("a factor of a tf32 product has not been rounded")

    def factors(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        each = word.itemsize // TYPES[{"tf32": "f32", "bf16": "b16"}.get(left, left)].itemsize
        x, y = (v.reshape(warps, WARP, -1) for v in (x, y))
        return _factor(x, high, each), _factor(y, 1, each).swapaxes(1, 2)

    def dealt(matrix: np.ndarray) -> np.ndarray:
        """The elements of a result, a row a lane."""
        return matrix.reshape(warps, high, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(warps * WARP, 2 * high)

    x, y = factors(_values(a, left), _values(b, right))
    sums = _values(c, addend) + dealt(x @ y)
    result = sums.astype(np.int64).astype(np.int32) if to == "s32" else sums.astype(TYPES[to])
    spoiled = None
    if any(bad is not None for bad in (bad_a, bad_b, bad_c)):
        bad_a, bad_b, bad_c = (np.zeros(v.shape, bool) if bad is None else bad for v, bad in ((a, bad_a), (b, bad_b), (c, bad_c)))
        each = TYPES[{"tf32": "f32", "bf16": "b16"}.get(left, left)].itemsize
        x, y = factors(bad_a[:, ::each], bad_b[:, ::each])
        spoiled = np.repeat(dealt(x.any(2)[:, :, None] | y.any(1)[:, None]), result.itemsize, axis=1) | bad_c
    m.parted(frame, targets, np.ascontiguousarray(result).view(np.uint8), spoiled, word, lanes)


# --- products of warpgroups: "Asynchronous Warpgroup Level Matrix Instructions", "membar/fence: fence.proxy.async" --------


def _fence(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    if i.parts[1:3] != ("proxy", "async"):
        raise PTXError(f"the instruction `{i.name}` is not known")
    asks = np.zeros(m.count, bool)
    asks[lanes] = True
    m.shared.fence(asks, int(m.thread.max()) + 1)


def _warpgroup(m: Machine, frame: Frame, i: Instruction, lanes: Lanes) -> None:
    """`wgmma`: products are computed at once, but until they are waited for nobody may touch their registers, or store where their
    factors are."""
    groups = np.arange(m.count)[lanes].reshape(-1, GROUP) if len(np.arange(m.count)[lanes]) % GROUP == 0 else None
    if groups is None or (np.diff(groups, axis=1) != 1).any() or (m.thread[groups[:, 0]] % GROUP).any():
        raise PTXError("threads of a warpgroup part at its instruction")
    match i.parts[1]:
        case "fence":
            for changed, _ in frame.sums.values():
                changed[lanes] = False
        case "commit_group":
            m.products[lanes] += 1
        case "wait_group":
            _finish(m, frame, groups, i.operands[0])
        case _ if i.parts[1] == "mma_async" and i.operands[3:6] == (1, 1, 1):
            for who in groups:
                _multiply_group(m, frame, i, who)
        case _:
            raise PTXError(f"the instruction `{i.name}` is not known")


def _finish(m: Machine, frame: Frame, groups: np.ndarray, latest: int) -> None:
    going, m.going = m.going, []
    first = set(groups[:, 0].tolist())
    for product in going:
        who, group, names, cells = product
        if who[0] not in first or group >= m.products[who[0]] - latest:
            m.going.append(product)
            continue
        m.shared.multiplied[cells] -= 1
        for name in names:
            frame.sums[name][1][who] = False
    for who, _, names, _ in m.going:
        for name in names:
            frame.sums[name][1][who] = True


def _multiply_group(m: Machine, frame: Frame, i: Instruction, who: np.ndarray) -> None:
    names, *descriptors = i.operands[:3]
    shape, (total, kind, other) = i.parts[4], i.parts[-3:]
    columns = int(shape.partition("n")[2].partition("k")[0])
    if not shape.startswith("m64n") or not shape.endswith("k16") or kind != other or kind not in ("f16", "bf16"):
        raise PTXError(f"the instruction `{i.name}` is not known")
    factors, touched = [], []
    for name, rows, transposed in zip(descriptors, (64, columns), i.operands[6:8], strict=True):
        bits = np.unique(np.broadcast_to(m.read(frame, name, TYPES["u64"], who), who.shape))
        if len(bits) > 1:
            raise PTXError("threads of a warpgroup multiply different matrices")
        at = _swizzled(int(bits[0]), rows, transposed)
        for lane in who[[0, -1]]:  # so that stores of any thread before the next barrier are a race
            places = m.shared.at(at.reshape(-1), 16, m.block[lane])
            read, cells = m.shared.multiply(places, 16, int(m.stamps[lane]))
        values = _values(read.reshape(-1), kind).reshape(*at.shape, 8)
        factors.append(values.swapaxes(1, 2).reshape(-1, 16) if transposed else values.reshape(-1, 16))
        touched.append(cells)
    going = any(product[0][0] == who[0] and product[2] == names for product in m.going)
    if any(frame.sums[name][0][who].any() or (frame.sums[name][1][who].any() and not going) for name in names):
        raise PTXError("registers of a product of a warpgroup are written with no fence behind")
    for name in names:
        frame.sums[name][1][who] = False
    word = TYPES["f32" if total == "f32" else "b32"]
    held, undefined = m.joined(frame, names, word, who)
    if undefined is not None and undefined.any():
        raise PTXError("registers of a product of a warpgroup hold what nothing wrote")
    made = (factors[0] @ factors[1].T).reshape(4, 2, 8, columns // 8, 4, 2).transpose(0, 2, 4, 3, 1, 5).reshape(GROUP, -1)
    result = (_values(held, total).reshape(GROUP, -1) + made).astype(TYPES[total])
    m.parted(frame, names, result.view(np.uint8), None, word, who)
    cells = np.concatenate(touched)
    m.shared.multiplied[cells] += 1
    for name in names:
        changed, going_on = frame.sums[name]
        changed[who], going_on[who] = False, True
    m.going.append((who, int(m.products[who[0]]), names, cells))


def _swizzled(descriptor: int, rows: int, transposed: int) -> np.ndarray:
    """The places of the parts of 16 bytes of a factor by its descriptor: two of each row, or those of each panel and step, whose
    eight rows follow (panels of rows, steps). Only the 128-byte swizzle is known."""
    start, leading, stride = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32))
    if descriptor >> 62 != 1 or descriptor >> 49 & 7:
        raise PTXError("only descriptors of the 128-byte swizzle are known")
    r, k = np.arange(0, rows, 8 if transposed else 1)[:, None], np.arange(0, 16, 1 if transposed else 8)
    if transposed:
        at = start + r // 64 * leading + k // 8 * stride + k % 8 * 128 + r % 64 * 2
    else:
        at = start + r // 8 * stride + r % 8 * 128 + k * 2
    return at ^ (at >> 7 & 7) << 4


INSTRUCTIONS: dict[str, Callable[[Machine, Frame, Instruction, Lanes], None]] = {
    "ld": _load, "st": _store, "cvta": _to_space, "call": _call, "cp": _copy,
    "shfl": _shuffle, "ldmatrix": _load_matrices, "mma": _multiply_matrices, "fence": _fence, "wgmma": _warpgroup,
}  # fmt: skip
