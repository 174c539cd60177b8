"""Division of integers, rounded down. A divisor that may be 0 is tested where the quotient is needed, once if it is invariant."""

from __future__ import annotations

from collections.abc import Iterator

from tir import dtypes
from tir.arith.bounds import bounds
from tir.arith.intervals import Interval
from tir.arith.polynomial import wraps
from tir.arith.simplify import normal_form
from tir.arith.statements import min_operands
from tir.ir import Binary, Const, Expr, Select, Unary, Var, conjunction
from tir.traverse import children, loads, variable_names

from ..runtime.faults import DIVIDED
from .memory import Memory
from .values import Value, number

DECIDED_BY_ALL_BITS = ("//", "%", "min", "max", "abs", "shr")  # operations whose last bits depend on all bits of the operands


def variable_divisions(e: Expr, given: tuple[Expr, ...] = ()) -> Iterator[tuple[Binary, tuple[Expr, ...]]]:
    """The integer divisions in an expression by divisors that are neither loaded nor nonzero constants, inner ones first. With
    each come the conditions under which `and` and `or` evaluate it. The branches of lazy selects are left out."""
    match e:
        case Const() | Var():
            return
        case Binary("and" | "or" as op, a, b):
            yield from variable_divisions(a, given)
            first = () if loads(b) else (a if op == "and" else Unary("not", a),)  # operands with loads are always evaluated
            yield from variable_divisions(b, (*given, *first))
        case Select(condition, lazy=True):
            yield from variable_divisions(condition, given)
        case _:
            for part in children(e):
                if isinstance(part, Expr):
                    yield from variable_divisions(part, given)
            if isinstance(e, Binary) and e.op in ("//", "%") and dtypes.is_int(e.dtype) and not _fixed(e.b) and not loads(e.b):
                yield e, given


def _fixed(divisor: Expr) -> bool:
    return isinstance(divisor, Const) and bool(divisor.value)


def factors_of_extent(extent: Expr) -> set[Expr]:
    """Expressions that are not 0 while a loop runs: the factors of its extent and, if that is a quotient, of the dividend."""
    return {factor for part in min_operands(extent) for factor in _nonzero_factors(part, 1)}


def _nonzero_factors(e: Expr, below: int) -> Iterator[Expr]:
    """The factors of the product p in e = p + k, for 0 <= k < `below`. If `e // below` is not 0, no factor is 0."""
    p = dict(normal_form(e, {}))
    if 0 <= p.pop((), 0) < below and len(p) == 1:
        for atom in next(iter(p)):
            yield atom
            match atom:
                case Binary("//", a, Const(int(c))) if c > 0:
                    yield from _nonzero_factors(a, c)


class Division(Memory):
    """Writes quotients and remainders of integers."""

    def admit(self, *expressions: Expr) -> None:
        """Leave the function if one of these expressions divides by 0; `_divisor` tests loaded divisors. Expressions computed
        early, before they are known to be needed, take a divisor of 0 as 1."""
        for division, conditions in self._uncertain(expressions):
            self._test(division, conditions)

    def _uncertain(self, expressions: tuple[Expr, ...]) -> Iterator[tuple[Binary, tuple[Expr, ...]]]:
        return (found for e in expressions for found in variable_divisions(e) if not self._nonzero(found[0]))

    def _nonzero(self, e: Binary) -> bool:
        """True where the divisor is known not to be 0 in the innermost frame."""
        known = {d for frame in self.frames for d in frame.nonzero}
        if e.b in known or not _within(0, bounds(e.b, self.ranges)):
            return True
        p = normal_form(e.b, self.ranges)
        return len(p) == 1 and all(atom in known or not _within(0, bounds(atom, self.ranges)) for m in p for atom in m)

    def beyond(self, op: str, *operands: Expr) -> bool:
        """True if an int32 operation depends on all bits of an operand that is an index of perhaps more than 32 bits."""
        cut = any(not wraps(x) and not self.fits(x, "int32") for x in operands)
        return cut and op in DECIDED_BY_ALL_BITS and operands[0].dtype == "int32"

    def operand(self, e: Binary, x: Expr) -> Value:
        """An operand of an integer operation, in the width in which it is computed."""
        return self.wrapped(x) if wraps(e) and not self.beyond(e.op, e.a, e.b) else self.index(x)

    def fits(self, index: Expr, dtype: str) -> bool:
        """True where a dtype holds all values of an index."""
        (low, high), (least, most) = bounds(index, self.ranges), dtypes.limits(dtype)
        return isinstance(low, int) and isinstance(high, int) and least <= low and high <= most

    def _test(self, e: Binary, conditions: tuple[Expr, ...]) -> None:
        """Leave the function if a divisor is 0. The test stands before loops in which it is invariant, if these surely run."""
        names = variable_names(e.b)
        steady = not conditions and self.mask is None and self._uniform(e.b)
        level = len(self.frames) - 1
        while steady and self.frames[level].stored is not None and not self.frames[level].defined & names:
            level -= 1

        def write() -> None:
            y = self.operand(e, e.b)
            zeros = self.compare("eq", y, 0)
            if conditions:
                zeros, counts = self.together(zeros, self.truth(self.expr(conjunction(*conditions))))
                zeros = self.binary("and", zeros, counts)
            self._leave_at_zero(zeros, e)

        frame = self.frames[level]
        self.within(frame, write) if steady else write()
        if steady and names.isdisjoint(self.constants):
            frame.nonzero.add(e.b)

    def _leave_at_zero(self, zeros: Value, e: Binary) -> None:
        """Leave the function with the status of a division where its divisor is 0, in lanes that are not masked off."""
        if self.mask is not None and (zeros.lanes > 1 or self.may_be_empty):
            zeros = self.binary("and", zeros, self.mask if zeros.lanes > 1 else self.any_lane())
        if zeros.lanes > 1:
            zeros = self.invoke(f"llvm.vector.reduce.or.v{zeros.lanes}i1", "i1", 1, zeros)
        self.leave_if(zeros, self.module.faults.get(e, DIVIDED))

    def divide(self, x: Value, y: Value, e: Binary, unsigned: bool) -> Value:
        """The quotient, or the remainder, of the values of the operands."""
        y = self._divisor(y, e)
        (low, high), (least, _) = bounds(e.b, self.ranges), bounds(e.a, self.ranges)
        x, y = self.together(x, y)
        if unsigned:
            return self._once("udiv" if e.op == "//" else "urem", x, y)
        positive = least is not None and least >= 0
        if isinstance(e.b, Const) and (shift := int(e.b.value).bit_length() - 1) >= 0 and e.b.value == 1 << shift:
            if e.op == "%":
                return self.binary("and", x, e.b.value - 1)
            return self.binary("lshr" if positive else "ashr", x, shift)
        by = y
        # The least number divided by -1 wraps around to itself; the processor's instruction would trap.
        wrapping = _within(-1, (low, high)) and (least is None or least <= -(1 << (int(x.type[1:]) - 1)))
        if wrapping:
            negates = self.compare("eq", y, -1)
            by = self.select(negates, 1, y)
        quotient, rest = self._once("sdiv", x, by), self._once("srem", x, by)
        if wrapping:
            quotient = self.select(negates, self.binary("sub", 0, x), quotient)
        if positive and low is not None and low >= 0:
            return quotient if e.op == "//" else rest
        opposite = self.compare("slt", self.binary("xor", rest, y), 0)
        adjust = self.binary("and", opposite, self.compare("ne", rest, 0))
        if e.op == "//":
            return self.binary("add", quotient, self.convert("sext", adjust, x.type))
        return self.binary("add", rest, self.select(adjust, y, 0))

    def _divisor(self, y: Value, e: Binary) -> Value:
        """The divisor, 1 in place of 0. A loaded divisor is tested here, in active lanes; `admit` has tested the others."""
        if loads(e.b):
            if self.mask is not None and (y.lanes > 1 or self.may_be_empty):
                y = self.select(self.mask if y.lanes > 1 else self.any_lane(), y, 1)
            if _within(0, bounds(e.b, self.ranges)):
                self._leave_at_zero(self.compare("eq", y, 0), e)
            return y
        if self._nonzero(e):
            return y

        def write() -> Value:
            divisor = self.operand(e, e.b)
            one = Value(number(1, divisor.type, divisor.lanes), divisor.type, divisor.lanes)
            key = ("or one", divisor.name)
            return self.invoke(f"llvm.umax.{divisor.suffix}", divisor.type, divisor.lanes, divisor, one, key=key)

        return self.within(self.home(variable_names(e.b)), write)

    def _once(self, opcode: str, x: Value, y: Value) -> Value:
        """The result of an instruction on two values; reused if the same instruction is in this frame or one around it."""
        text = f"{opcode} {x}, {y.name}"
        known = (frame.known[text] for frame in self.frames if text in frame.known)
        return next(known, None) or self.op(text, x.type, x.lanes, key=text)


def _within(number: int, interval: Interval) -> bool:
    low, high = interval
    return (low is None or low <= number) and (high is None or number <= high)
