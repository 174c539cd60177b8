"""Expressions as LLVM values: scalars, vectors and masks of every dtype."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, inf, prod

from tir import dtypes
from tir.arith.bounds import bounds
from tir.arith.intervals import polynomial_bounds
from tir.arith.polynomial import Polynomial, nonpositive, polynomial, to_expr
from tir.arith.simplify import simplify, wraps
from tir.ir import COMPARISONS, LOGICAL, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, conjunction, conjuncts
from tir.traverse import loads, variable_names, walk

from ..processor import fuses_multiply_add, scales_by_powers
from . import dot
from . import math as vector_math
from .division import Division
from .memory import SHUFFLED_STRIDES, hoistable
from .values import TYPES, CodegenError, Value, constant, lone_variables, suffix, zero

BITS = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor", "shl": "shl", "shr": "ashr"}
# Conversions of float32 to the nearest int32 on x86, by the lanes of a vector: the feature and LLVM's intrinsic.
NEAREST = {8: ("avx", "llvm.x86.avx.cvt.ps2dq.256"), 16: ("avx512f", "llvm.x86.avx512.mask.cvtps2dq.512")}
OPCODES = {"+": "add", "-": "sub", "*": "mul", "/": "div"}  # those of floats begin with f


def _clip_bounds(e: Expr) -> tuple[float, float]:
    """Constant bounds of a float by its `min` and `max`; a NaN is within all bounds."""
    match e:
        case Binary("min" | "max" as op, a, Const(c)) | Binary("min" | "max" as op, Const(c), a):
            low, high = _clip_bounds(a)
            return (min(low, c), min(high, c)) if op == "min" else (max(low, c), max(high, c))
    return -inf, inf


def _is_short(dtype: str) -> bool:
    """True for integers of 8 or 16 bits."""
    return dtypes.is_int(dtype) and dtypes.bits(dtype) in (8, 16)


def _fits_int32(e: Expr) -> bool:
    """True where a float is clipped to numbers that int32 has."""
    low, high = _clip_bounds(e)
    return dtypes.limits("int32")[0] <= low and high <= dtypes.exact_integers("float32")


class Arithmetic(Division):
    """Writes expressions."""

    def negate(self, v: Value) -> Value:
        ones = "true" if v.lanes == 1 else "splat (i1 true)"
        return self.op(f"xor {v}, {ones}", "i1", v.lanes)

    def expr(self, e: Expr) -> Value:
        match e:
            case Const(value, dtype):
                return constant(value, dtype)
            case Var(name):
                if name in self.constants:
                    return Value(str(self.constants[name]), "i64")
                if name not in self.env:
                    raise CodegenError(f"variable `{name}` is used where it does not exist")
                return self.env[name]
            case Load():
                return self.load(e)
            case Binary("+") if self.lane is not None and (value := dot.product(self, e)) is not None:
                return value
            case Binary(op, a, b) if op in COMPARISONS or op in LOGICAL:
                return self._hoisted(e, lambda: self.condition(op, a, b))
            case Binary(op, a, b):
                if dtypes.is_float(e.dtype):
                    divided = op == "/"
                    return self._before_loops(e, lambda: self.float_binary(op, a, b)) if divided else self.float_binary(op, a, b)
                if wraps(e):
                    x, y = self.operand(e, a), self.operand(e, b)
                    return self.as_type(self.integer(e, x, y, dtypes.TABLE[e.dtype].kind != "int", exact=False), e.dtype)
                return self._hoisted(e, lambda: self.integer(e, self.index(a), self.index(b), False, exact=True))
            case Unary("not", a):
                return self.negate(self.truth(self.expr(a)))
            case Unary("neg", a):
                v = self.wrapped(a) if wraps(a) else self.expr(a)
                if v.type in ("float", "double"):
                    return self.op(f"fneg {v}", v.type, v.lanes)
                return self.op(f"sub {v.full} {zero(v)}, {v.name}", v.type, v.lanes)
            case Cast(dtype, value):
                return self.cast(dtype, value)
            case Select(c, t, f, lazy):
                if dtypes.is_float(e.dtype) and not lazy:
                    return self._before_loops(e, lambda: self.choice(c, t, f, lazy))
                return self.choice(c, t, f, lazy)
            case Call(op, args):
                return self._before_loops(e, lambda: self.call(op, args, e.dtype))
            case _:
                raise CodegenError(f"the llvm backend cannot compile the expression `{e}`")

    def _hoisted(self, e: Expr, write: Callable[[], Value]) -> Value:
        """A pure integer expression, computed once in the outermost frame that knows its variables."""
        if not hoistable(e):
            return write()
        home = self.home(variable_names(e))
        key = ("expr", e, self._copy(variable_names(e)), self.lane if not self._uniform(e) else None)
        if key in home.known:
            return home.known[key]
        same = self._comparison(e)
        value = None if same is None else home.known.get(same)
        if value is None:
            value = self.within(home, write)
            if same is not None:
                home.known[same] = value
        home.known[key] = value
        self.hoisted_in[value.name] = home
        self.sources[value.name] = variable_names(e) | self.sources.get(value.name, frozenset())
        return value

    def _before_loops(self, e: Expr, write: Callable[[], Value]) -> Value:
        """A pure function of numbers, computed before the loops in which it is invariant."""
        if not self._uniform(e) or self.mask is not None or self.load_condition is not None:
            return write()
        operands = [n for n in walk(e) if isinstance(n, Load)]
        frames = [self._invariant(self.address_of(n)) for n in operands]
        known = [f for f in frames if f is not None]
        if len(known) < len(frames):
            return write()
        home = max([self.home(variable_names(e)), *known], key=self.frames.index)
        read = frozenset((n.buffer.name, self.versions.get(n.buffer.name, 0)) for n in operands)
        key = ("call", e, self._copy(variable_names(e)), read)
        if key not in home.known:
            home.known[key] = self.within(home, write)
            self.hoisted_in[home.known[key].name] = home
        return home.known[key]

    def _comparison(self, e: Expr) -> tuple[object, ...] | None:
        """A key that equivalent comparisons share, in this copy of unrolled loops; None for another expression."""
        p = self._excess(e)
        if p is None:
            return None
        limit = p.pop((), 0)
        divisor = gcd(*p.values()) or 1
        terms = frozenset((m, c // divisor) for m, c in p.items())
        return "holds", terms, -(-limit // divisor), self.lane if not self._uniform(e) else None

    def _holds(self, e: Expr) -> bool:
        """True where a comparison holds in all iterations of the loops around, in this copy of the unrolled ones."""
        p = self._excess(e)
        _, high = (None, None) if p is None else polynomial_bounds(p, self.ranges)
        return high is not None and high <= 0

    def _excess(self, e: Expr) -> Polynomial | None:
        """A polynomial that is <= 0 where an inequality of indices holds, in this copy of unrolled loops; else None."""
        p = nonpositive(e) if isinstance(e, Binary) and e.op in COMPARISONS and not wraps(e.a) and not wraps(e.b) else None
        if p is None:
            return None
        total: Polynomial = {}
        for m, c in p.items():
            left = tuple(atom for atom in m if not (type(atom) is Var and atom.name in self.constants))
            if not self.constants.keys().isdisjoint(v for atom in left for v in variable_names(atom)):
                return None
            here = prod(self.constants[atom.name] for atom in m if type(atom) is Var and atom.name in self.constants)
            total[left] = total.get(left, 0) + c * here
        return {m: c for m, c in total.items() if c}

    def condition(self, op: str, a: Expr, b: Expr) -> Value:
        if op in LOGICAL:
            x, y = self.together(self.truth(self.expr(a)), self.truth(self.expr(b)))
            return self.op(f"{op} {x}, {y.name}", "i1", x.lanes, key=(op, x.name, y.name))
        if dtypes.is_float(a.dtype):
            x, y = self.together(self.expr(a), self.expr(b))
            code = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}[op]
            return self.compare(code, x, y)
        unsigned = dtypes.TABLE[a.dtype].kind == "uint"
        sides = self._lane_against_rest(a, b)
        x, y = sides or (self.expr(a), self.expr(b))
        if x.type != y.type:  # an exact index beside a loaded value
            width = a.dtype if self.fits(a if x.type == "i64" else b, a.dtype) else "int64"
            x, y = self.as_type(x, width, not unsigned), self.as_type(y, width, not unsigned)
        x, y = self.together(x, y)
        code = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}[op]
        sign = "" if op in ("==", "!=") else "u" if unsigned or a.dtype == "bool" else "s"
        return self.compare(f"{sign}{code}", x, y)

    def _lane_against_rest(self, a: Expr, b: Expr) -> tuple[Value, Value] | None:
        """Two vectors of 32-bit elements that compare as the indices `a` and `b`, if their difference is linear in the lane:
        constant multiples of the lane, and a scalar rest; None otherwise."""
        if self.lane is None or wraps(a) or wraps(b) or any(isinstance(n, (Load, Call)) for e in (a, b) for n in walk(e)):
            return None
        name, lanes = self.lane
        p = polynomial(simplify(a - b, self.ranges))
        lane = lone_variables(p).get(name)
        stride = p.pop(lane, 0) if lane is not None else 0
        if not 0 < abs(stride) * lanes < 2**30 or not all(self._uniform(atom) for m in p for atom in m):
            return None
        rest = simplify(to_expr({m: -c for m, c in p.items()}, a.dtype), self.ranges)
        low, high = bounds(rest, self.ranges)

        def scalar() -> Value:
            v = self.index(rest)
            for op, bound, known in (("smin", 2**30, high), ("smax", -(2**30), low)):  # beyond these, no lane makes a difference
                if known is None or abs(known) > 2**30:
                    v = self.intrinsic(op, v, bound)
            return self.as_type(v, "int32")

        steps = ", ".join(f"i32 {i * stride}" for i in range(lanes))
        home = self.home(variable_names(rest))
        key = ("rest", rest, self._copy(variable_names(rest)), lanes)
        if key not in home.known:
            home.known[key] = self.within(home, lambda: self.splat(scalar()))
        return Value(f"<{steps}>", "i32", lanes), home.known[key]

    def operation(self, op: str, x: Value, y: Value, dtype: str) -> Value:
        if op in LOGICAL:
            return self.binary(op, *self.together(x, y))
        if dtypes.is_float(dtype):
            return self.float_operation(op, x, y, dtype)
        return self.int_binary(op, x, y, dtypes.TABLE[dtype].kind != "int", exact=False)

    def integer(self, e: Binary, x: Value, y: Value, unsigned: bool, exact: bool) -> Value:
        return self.divide(x, y, e, unsigned) if e.op in ("//", "%") else self.int_binary(e.op, x, y, unsigned, exact)

    def int_binary(self, op: str, x: Value, y: Value, unsigned: bool, exact: bool) -> Value:
        x, y = self.together(x, y)
        flags = "nsw " if exact else ""
        match op:
            case "+" | "-" | "*":
                return self.op(f"{OPCODES[op]} {flags}{x}, {y.name}", x.type, x.lanes)
            case "min" if unsigned and {x.name, y.name} & {"0", f"splat ({x.type} 0)"}:  # LLVM 22 fails on umin(fptoui x, 0)
                return Value("0", x.type)
            case "min" | "max":
                return self.intrinsic(f"{'u' if unsigned else 's'}{op}", x, y)
            case _:
                raise CodegenError(f"operator `{op}` is not for integers")

    def float_binary(self, op: str, a: Expr, b: Expr) -> Value:
        dtype = a.dtype
        if op in ("+", "-") and dtype in ("float32", "float64"):
            # Multiply-add: one rounding instead of two.
            for product, other, swapped in ((b, a, False), (a, b, True)):
                if isinstance(product, Binary) and product.op == "*":
                    x, y, z = self.expr(product.a), self.expr(product.b), self.expr(other)
                    if op == "-" and swapped:  # p - z
                        z = self.op(f"fneg {z}", z.type, z.lanes)
                    elif op == "-":  # z - p
                        x = self.op(f"fneg {x}", x.type, x.lanes)
                    return self.fma(x, y, z)
        return self.float_operation(op, self.expr(a), self.expr(b), dtype)

    def float_operation(self, op: str, x: Value, y: Value, dtype: str) -> Value:
        x, y = self.together(x, y)
        match op:
            case "+" | "-" | "*" | "/":
                result = self.binary(OPCODES[op], x, y)
            case "min" | "max":  # the first where they are equal, as with zeros of both signs
                result = self.select(self.compare("olt" if op == "min" else "ogt", y, x), y, x)
            case "//" | "%":
                result = self.math("floordiv" if op == "//" else "floormod", x, y)
            case _:
                raise CodegenError(f"operator `{op}` is not for floats")
        return self.rounded(result, dtype)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z, rounded once where the processor can do that, else twice: `llvm.fma` would be a library call there."""
        return self.intrinsic("fmuladd", *self.together(x, y, z))

    def cast(self, dtype: str, value: Expr) -> Value:
        source = value.dtype
        match value:
            case Call("nearbyint", (clipped,)) if (source, dtype) == ("float32", "int32") and _fits_int32(clipped):
                return self._nearest(self.expr(clipped))
            case Binary("+", Cast("int32", Call("nearbyint", (clipped,))), Const() as added) if (
                _is_short(dtype) and source == "int32" and _fits_int32(clipped)
            ):
                nearest = self._nearest(self.expr(clipped), short=True)
                return self.as_type(self.binary("add", nearest, int(added.value)) if added.value else nearest, dtype)
            case Cast("int32", Call("nearbyint", (clipped,))) if _is_short(dtype) and _fits_int32(clipped):
                return self.as_type(self._nearest(self.expr(clipped), short=True), dtype)
        v = self.expr(value)
        to = TYPES[dtype]
        kind = dtypes.TABLE[source].kind
        if dtype == "bool":
            if kind == "float":
                return self.op(f"fcmp une {v}, {zero(v)}", "i1", v.lanes)
            return self.truth(v)
        if dtypes.is_float(dtype):
            if kind == "float":
                if dtypes.is_half(dtype):
                    return v if source == dtype else self.rounded(v, dtype)
                if v.type == to:
                    return v
                return self.convert("fpext" if to == "double" else "fptrunc", v, to)
            verb = "uitofp" if kind in ("uint", "bool") else "sitofp"
            if dtypes.is_half(dtype):  # by way of a type that holds the integer, so that it is rounded once
                wide = "double" if v.type in ("i32", "i64") else "float"
                return self.rounded(self.convert(verb, v, wide), dtype)
            return self.convert(verb, v, to)
        if kind == "float":
            return self._saturated(v, dtype, _clip_bounds(value))
        if kind == "bool":
            return self.convert("zext", v, to)
        return self.as_type(v, dtype, signed=kind == "int")

    def _nearest(self, v: Value, short: bool = False) -> Value:
        """The nearest int32 of a float32 that is in its range, 0 for NaN. With `short`, its low 16 bits alone are: NaN becomes
        0x80000000 by the instructions of x86, whose low bits are 0."""
        if short and v.lanes in NEAREST and NEAREST[v.lanes][0] in self.module.target.features:
            rest = (Value("poison", "i32", v.lanes), Value("-1", "i16"), Value("4", "i32")) if v.lanes == 16 else ()
            return self.invoke(NEAREST[v.lanes][1], "i32", v.lanes, v, *rest)  # 4 is the current rounding mode
        nearest = self.invoke(f"llvm.lrint.{suffix('i32', v.lanes)}.{v.suffix}", "i32", v.lanes, v)
        return self.select(self.compare("ord", v, v), nearest, 0)

    def _saturated(self, v: Value, dtype: str, clipped: tuple[float, float]) -> Value:
        """A float truncated to an integer and saturated to `dtype`; 0 for NaN. `clipped` are known bounds of the float."""
        low, high = dtypes.limits(dtype)
        wide = TYPES[dtype] if dtypes.bits(dtype) >= 32 else "i32"  # narrow integers through 32 bits, as C does
        verb = "fptoui" if dtypes.TABLE[dtype].kind == "uint" and wide == TYPES[dtype] else "fptosi"
        exact = high < dtypes.exact_integers("float32" if v.type == "float" else "float64")  # floats have the largest
        bounded = v
        if clipped[0] < low:
            bounded = self.select(self.compare("olt", bounded, low), low, bounded)
        if clipped[1] > high and exact:
            bounded = self.select(self.compare("ogt", bounded, high), high, bounded)
        number = self.select(self.compare("ord", v, v), self.convert(verb, bounded, wide), 0)
        if clipped[1] > high and not exact:
            number = self.select(self.compare("oge", v, high), high, number)
        return self.as_type(number, dtype)

    def choice(self, c: Expr, t: Expr, f: Expr, lazy: bool) -> Value:
        effects = any(  # a register may be read where it is not needed, too
            n.buffer.scope != "register" if isinstance(n, Load) else isinstance(n, Binary) and n.op in ("//", "%")
            for side in (t, f)
            for n in walk(side)
        )
        if lazy and effects:
            if all(map(self._holds, conjuncts(c))):  # as that of padding in all unrolled rows but the first
                return self._typed_value(t)
            fails = any(True for _ in self._uncertain((t, f)))
            if isinstance(t, Select) and t.lazy and isinstance(f, Const) and t.false_value == f and not fails:
                return self.choice(conjunction(c, t.condition), t.true_value, f, lazy)
            if isinstance(t, Load) and isinstance(f, Const) and not fails and self._loaded_beside(t, f, c):
                return self._masked_load(c, t, f)
            if self._uniform(c):
                if isinstance(t, Load) and isinstance(f, Const) and not fails and all(map(hoistable, t.indices)):
                    return self._load_if(self.truth(self.expr(c)), t, f)
                return self._lazy_branch(c, t, f)
            mask = self.truth(self.splat(self.expr(c)))
            self.conditions[mask.name] = conjuncts(c)
            x = self._in_lanes(mask, t)
            y = self._in_lanes(self.negate(mask), f)
            return self.select(mask, x, y)
        condition = self.truth(self.expr(c))
        x, y = self.together(self._typed_value(t), self._typed_value(f))
        if condition.lanes > x.lanes:
            x, y = self.splat(x, condition.lanes), self.splat(y, condition.lanes)
        return self.select(condition, x, y)

    def _load_if(self, condition: Value, t: Load, f: Const) -> Value:
        """A load where the condition holds, else a constant; without a branch, by a load of zeros from another address."""
        outer, self.load_condition = self.load_condition, condition
        x = self.load(t)
        self.load_condition = outer
        if f.value == 0:
            return x
        y = self.splat(self._typed_value(f), x.lanes)
        return self.select(condition, x, y)

    def _loaded_beside(self, t: Load, f: Const, condition: Expr) -> bool:
        """True where one instruction loads a vector, with a constant in lanes where the condition fails."""
        if f.value == 0:
            return not self._uniform(condition) and self.address_of(t).stride != 0
        plain = t.dtype == f.dtype == dtypes.computed(f.dtype) and t.dtype != "bool"
        return plain and not any(map(loads, t.indices)) and self.address_of(t).stride in (1, *SHUFFLED_STRIDES)

    def _masked_load(self, condition: Expr, t: Load, f: Const) -> Value:
        """A load in the lanes where the condition holds, a constant elsewhere. The uniform part of the condition selects the
        address instead of the lanes, so that loads which differ in it alone share a mask."""
        conditions = [c for c in conjuncts(condition) if not self._holds(c)]
        uniform = [c for c in conditions if self._uniform(c)]
        outer = self.load_condition, self.masked_off_value
        self.masked_off_value = Value(constant(f.value, f.dtype).name, TYPES[f.dtype]) if f.value != 0 else None
        if uniform and all(map(hoistable, t.indices)):
            self.load_condition = self.truth(self.expr(conjunction(*uniform)))
            conditions = [c for c in conditions if c not in uniform]
        if conditions:
            mask = self.truth(self.splat(self.expr(conjunction(*conditions))))
            self.conditions[mask.name] = conditions
            x = self._in_lanes(mask, t)
        else:
            x = self.load(t)
        self.load_condition, self.masked_off_value = outer
        return x

    def _in_lanes(self, mask: Value, e: Expr) -> Value:
        """The value of `e` in the lanes of `mask`, which may be none; undefined in the others."""
        outer = self.mask, self.may_be_empty
        self.mask, self.may_be_empty = self.narrowed(mask), True
        self.admit(e)
        value = self.splat(self._typed_value(e))
        self.mask, self.may_be_empty = outer
        return value

    def _typed_value(self, e: Expr) -> Value:
        """The value in the LLVM type of its dtype, so that both sides of a choice agree."""
        return self.as_type(self.expr(e), e.dtype) if dtypes.is_int(e.dtype) else self.expr(e)

    def _lazy_branch(self, c: Expr, t: Expr, f: Expr) -> Value:
        condition = self.truth(self.expr(c))
        lanes = 1 if self._uniform(t) and self._uniform(f) else self.lanes
        results: list[tuple[Value, str]] = []

        def side(e: Expr) -> Callable[[], None]:
            def write() -> None:
                self.admit(e)
                v = self.splat(self._typed_value(e), lanes) if lanes > 1 else self._typed_value(e)
                results.append((v, self.top.label))

            return write

        self.fork(condition, side(t), side(f))
        (x, from_x), (y, from_y) = results
        return self.op(f"phi {x.full} [ {x.name}, %{from_x} ], [ {y.name}, %{from_y} ]", x.type, x.lanes)

    def call(self, op: str, args: tuple[Expr, ...], dtype: str) -> Value:
        taken = self.index if self.beyond(op, *args) else self.wrapped
        if op == "abs" and dtypes.is_int(dtype):
            v = taken(args[0])
            if dtypes.TABLE[dtype].kind == "uint":
                return v
            return self.as_type(self.invoke(f"llvm.abs.{v.suffix}", v.type, v.lanes, v, Value("false", "i1")), dtype)
        if op == "popcount":
            v = self.wrapped(args[0])
            return self.invoke(f"llvm.ctpop.{v.suffix}", v.type, v.lanes, v)
        if op in BITS:
            x, y = self.together(*map(taken, args))
            return self.as_type(
                self.binary("lshr" if op == "shr" and dtypes.TABLE[dtype].kind == "uint" else BITS[op], x, y), dtype
            )
        match op, args:
            case "exp", (Select(Binary(">", e, Const(0)), Const(0), same),) if e == same:
                return self.rounded(self.math("capped_exp", self.expr(e)), dtype)
        values = self.together(*(self.expr(a) for a in args))
        return self.rounded(self.math(op, *values), dtype)

    def math(self, op: str, *values: Value) -> Value:
        x = values[0]
        dtype = {"float": "float32", "double": "float64"}[x.type]
        name = vector_math.function_name(op, dtype, x.lanes)
        if name not in self.module.library:
            features = self.module.target.features
            avx512, fused = scales_by_powers(features), fuses_multiply_add(features)
            self.module.library[name], declarations = vector_math.definition(op, dtype, x.lanes, avx512, fused)
            self.module.declarations |= declarations
        return self.op(f"call {x.full} @{name}({', '.join(map(str, values))})", x.type, x.lanes)
