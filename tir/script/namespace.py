"""The names of scripts: the members of `T`, as the parser knows them. Users import them from `tir.script.tir`.

Functions make values (`T.exp`, `T.max`), types convert them (`T.float32`); both may be called anywhere. Forms declare or
structure (`T.block`, `T.grid`, `T.alloc_buffer`): they have a signature here, and a meaning only in the parser.
"""

from __future__ import annotations

import builtins
import inspect
from typing import Any

from .. import dtypes
from ..arith.polynomial import as_constant, polynomial
from ..arith.simplify import simplify
from ..intrinsics import INTRINSICS
from ..ir import Cast as CastNode
from ..ir import Expr, as_expr, const, negative
from ..ir import cast as cast_expr
from ..te import elementwise
from ..te.elementwise import operator

# --- forms: what the parser understands --------------------------------------------------------------------------------


class Form:
    """A name with a meaning only inside a script. `call` is the name with its parameters; `place` says where it is allowed."""

    def __init__(self, call: str, place: str, meaning: str):
        self.name, _, parameters = call.removesuffix(")").partition("(")
        self.place, self.__doc__ = place, meaning
        self.signature = inspect.signature(eval(f"lambda {parameters}: ..."))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"T.{self.name} has a meaning only inside a function under @T.prim_func; it {self.place}")

    def __repr__(self) -> str:
        return f"T.{self.name}"


class Annotation(Form):
    """A form that may also be used in a parameter list, which Python evaluates: there it returns itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, arguments: Any) -> Any:
        return self


class ForeignForm(Form):
    """A function unknown to the IR."""


class LoopForm(Form):
    """The range of a `for`."""


class AxisForm(Form):
    """A declaration of iteration variables."""


class Type:
    """An element type: `T.float32(x)` converts or makes a constant, `n: T.int32` declares, `n = T.int32()` is a new size."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, value: Any = None) -> Expr:
        match value:
            case None:
                raise TypeError(f"{self}() makes a size only inside a function under @T.prim_func, as `n = {self}()`")
            case Expr():
                return cast_expr(value, self.name)
            case str() if dtypes.is_float(self.name) and value.strip().lstrip("+-").lower() in ("inf", "infinity", "nan"):
                return const(float(value), self.name)
            case str():
                raise TypeError(f'T.{self.name} takes a number, or for floats "inf", "-inf" or "nan"; got {value!r}')
            case _:
                return const(value, self.name)

    def __repr__(self) -> str:
        return f"T.{self.name}"


_NO_NAMES_OF_SCRIPTS = frozenset(globals())  # the imports and classes above

_DECLARES = "stands alone to the right of `=`"
_BINDS = "stands to the right of `=`, or in a `with ... as`"
_LOOP = "is the range of a `for`"
_WITH = "stands in a `with`"
_STATEMENT = "stands alone as a statement"
_VALUE = "is an expression"
_VECTOR = "stands in a statement on vectors"

# The parameters of declarations of buffers, of loops, and of axes.
_STATES = (
    "({}, dtype='float32', data=None, strides=None, elem_offset=None, scope='global', align={}, offset_factor=0, "
    "buffer_type={!r}, axis_separators=None)"
).format
_SPAN = "(start, stop=None, *, annotations=None, dtype=None)"
_AXIS = "(dom, binding, dtype=None)"
_THREADS = "(start, stop=None, thread=None, *, annotations=None, dtype=None)"
_MEMORY = "(extents, dtype='float32', scope='global', condition=None, annotations=None)"

Buffer = Annotation(
    "Buffer" + _STATES("shape", 0, ""), "declares a parameter, or a view: V = T.Buffer(shape, data=A.data)",
    "A parameter that is an array, or with `data` another view of an array's elements.",
)  # fmt: skip
handle = Annotation(
    "handle(dtype='void', storage_scope='global')", "declares a parameter", "An array, once `T.match_buffer` shapes it."
)
match_buffer = Form(
    "match_buffer" + _STATES("param, shape=None", -1, "default"), _DECLARES, "The array of a handle, or a part of a buffer."
)
alloc_buffer = Form("alloc_buffer" + _STATES("shape", -1, "default"), _DECLARES, "A buffer of the block around, or the function.")
decl_buffer = Form("decl_buffer" + _STATES("shape", 0, ""), _BINDS, "A buffer for what follows, or a view of `data`.")
allocate = Form("allocate" + _MEMORY, _BINDS, "Memory for what follows, to be seen through `T.Buffer(shape, data=...)`.")
allocate_const = Form(
    "allocate_const(data, dtype='float32', extents=None, annotations=None)", _BINDS, "Memory that holds the numbers of a list."
)
launch_thread = Form("launch_thread(thread, extent)", _BINDS, "A GPU thread axis for the statements that follow.")
env_thread = Form("env_thread(thread_tag, dtype='int32')", _DECLARES, "The name of a GPU thread axis, for `T.launch_thread`.")
var = Form("var(dtype='int32', name='')", _DECLARES, "A symbolic size.")
grid = LoopForm("grid(*extents)", _LOOP, "Nested serial loops.")
serial = LoopForm("serial" + _SPAN, _LOOP, "A loop whose iterations run in order.")
parallel = LoopForm("parallel" + _SPAN, _LOOP, "A loop whose iterations run on several threads.")
vectorized = LoopForm("vectorized" + _SPAN, _LOOP, "A loop whose iterations are the lanes of a vector.")
unroll = LoopForm("unroll" + _SPAN, _LOOP, "A loop whose iterations are written out.")
thread_binding = LoopForm(
    "thread_binding" + _THREADS, _LOOP, 'A loop over threads of a GPU: "blockIdx.x", "threadIdx.y", "vthread.x", ...'
)
block = Form("block(name='', no_realize=False)", _WITH, 'A block: `with T.block("C"):`.')
init = Form("init()", _WITH, "The statements of a block that run before the first iteration of its reduction.")
where = Form("where(predicate)", _STATEMENT, "The condition, over loop variables, under which a block runs.")
reads = Form("reads(*regions)", _STATEMENT, "The regions that a block reads.")
writes = Form("writes(*regions)", _STATEMENT, "The regions that a block writes.")
block_attr = Form("block_attr(attrs)", _STATEMENT, "Annotations of a block.")
func_attr = Form("func_attr(attrs)", _STATEMENT, "Attributes of the function.")
evaluate = Form("evaluate(value)", _STATEMENT, "Evaluate an expression for its effect.")
assume = Form("assume(condition)", _STATEMENT, "A condition on the sizes, checked at each call.")
attr = Form("attr(node, attr_key, value)", f"{_STATEMENT} or in a `with`", "A remark: ignored if without effect, else refused.")
LetStmt = Form("LetStmt(value, type_annotation=None, *, var=None)", "stands in a `with ... as`", "`with T.LetStmt(i * 4) as x:`.")
let = Form(
    "let(var, value, body=None)", f"{_WITH}, or binds a name within an expression",
    "Bind a name to a value: `with T.let(x, i * 4):`, or `T.let(x, i * 4, x + x)` within an expression.",
)  # fmt: skip
Let = Form("Let(body, where)", "binds names within an expression", "`T.Let(x + x, where={x: i * 4})`.")
ramp = Form("ramp(base, stride, lanes)", _VECTOR, "The vector `base`, `base + stride`, ...")
broadcast = Form("broadcast(value, lanes)", _VECTOR, "A vector of one value.")
truncdiv = Form("truncdiv(a, b)", _VALUE, "a / b toward zero; `//` where both are provably not negative.")
truncmod = Form("truncmod(a, b)", _VALUE, "The remainder of `truncdiv`.")


class axis:
    """The iteration variables of a block."""

    spatial = AxisForm(
        "spatial" + _AXIS, _DECLARES, "A data-parallel axis of an extent (or (start, stop)), bound to an expression of loops."
    )
    reduce = AxisForm("reduce" + _AXIS, _DECLARES, "An axis of a commutative reduction.")
    opaque = AxisForm("opaque" + _AXIS, _DECLARES, "An axis of which nothing is known.")
    scan = AxisForm("scan" + _AXIS, _DECLARES, "An axis whose iterations run in order.")
    remap = AxisForm(
        "remap(kinds, bindings, dtype=None)", _DECLARES, 'Axes as long as loops: `vi, vk = T.axis.remap("SR", [i, k])`.'
    )
    S, R = spatial, reduce


Ramp, Broadcast = ramp, broadcast
sblock, sblock_attr, sblock_alloc_buffer = block, block_attr, alloc_buffer

# Functions that are unknown to the IR, and forms of their arguments.
_FOREIGN = """
    call_extern call_pure_extern call_intrin call_llvm_intrin call_llvm_pure_intrin call_packed call_cpacked tvm_call_packed
    tvm_call_cpacked tvm_load_matrix_sync tvm_store_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment tvm_storage_sync
    ptx_mma ptx_mma_sp ptx_ldmatrix ptx_cp_async ptx_commit_group ptx_wait_group mma_store mma_fill tvm_mfma tvm_mfma_store
    tvm_rdna_wmma make_filled_simdgroup_matrix simdgroup_load simdgroup_store simdgroup_multiply_accumulate ptx_ldg32
    ptx_cp_async_bulk ptx_cp_async_barrier ptx_init_barrier_thread_count ptx_arrive_barrier ptx_wait_barrier
    ptx_arrive_barrier_expect_tx create_barriers tvm_thread_allreduce start_profile_intrinsic end_profile_intrinsic

    tvm_access_ptr address_of type_annotation tvm_stack_make_array tvm_stack_make_shape tvm_stack_alloca tvm_struct_get"""
globals().update({name: ForeignForm(f"{name}(*args, dtype='')", _STATEMENT, "Unknown to the IR.") for name in _FOREIGN.split()})

# --- values ------------------------------------------------------------------------------------------------------------

globals().update({name: Type(name) for name in dtypes.TABLE} | {name: getattr(elementwise, name) for name in elementwise.__all__})
boolean = Type("bool")

Select = elementwise.select
max = Max = elementwise.maximum
min = Min = elementwise.minimum
fabs = elementwise.abs
power = elementwise.pow


def Cast(dtype: str, value) -> Expr:
    """`value` converted to `dtype`."""
    return CastNode(dtypes.check(dtype), as_expr(value))


def cast(value, dtype: str) -> Expr:
    """`value` converted to `dtype`; `value` itself if it has it."""
    return cast_expr(as_expr(value), dtype)


def neg(value) -> Expr:
    """-value; not folded for a constant."""
    return negative(as_expr(value))


Add, Sub, Mul, Div, LT, LE, GT, GE, And, Or = (operator(op) for op in ("+", "-", "*", "/", "<", "<=", ">", ">=", "and", "or"))
FloorDiv, FloorMod, Not = elementwise.floordiv, elementwise.floormod, elementwise.logical_not
EQ, NE = elementwise.equal, elementwise.not_equal
indexdiv, indexmod = FloorDiv, FloorMod


def likely(value) -> Expr:
    """`value`: the hint is ignored."""
    return as_expr(value)


def bind(value, type_annotation=None) -> Expr:
    """`value`, for a name: `x = T.bind(i * 4)`."""
    return as_expr(value)


def q_multiply_shift(x, y, q: int | Expr, s: int | Expr) -> Expr:
    """x * y * 2**(s - q) of int32, rounded to nearest, halves up: a product where the last q bits are the fraction."""
    bits, up = (as_constant(polynomial(simplify(as_expr(n)))) for n in (q, s))
    if bits is None or up is None:
        raise TypeError(f"q_multiply_shift: q and s must be constants, got {q} and {s}")
    down = bits + builtins.max(-up, 0)
    product = cast(x, "int64") * const(1 << builtins.max(up, 0), "int64") * cast(y, "int64")
    return cast((product + const(1 << down >> 1, "int64")) // const(1 << down, "int64"), "int32")


def meta_var(value) -> Any:
    """`value`; a name for it makes no let."""
    return value


def target(description, host=None) -> Any:
    """A target in an attribute, as plain data."""
    return description


Target = target

__all__ = sorted(name for name in globals().keys() - _NO_NAMES_OF_SCRIPTS if not name.startswith("_"))

# Names of TensorIR that are not in this dialect, by hint.
_INSTEAD = {
    "write the scalar statement under `for i in T.vectorized(n)`": """
        Shuffle vscale vectorlow vectorhigh""",
    f"the intrinsics are {', '.join(list(INTRINSICS)[:-1])} and {list(INTRINSICS)[-1]}": "exp10 fma erfc lgamma",
    dtypes.NO_FLOAT8: """
        float8 float8_e4m3 float8_e4m3fn float8_e5m2 e4m3_float8 e5m2_float8 float8_e8m0fnu""",
    "reinterpreted memory has no counterpart": "reinterpret",
    "index the buffer: A[i, j] = B[i, j]": "load store vload vstore buffer_store",
    "the operations on bits are bit_and, bit_or, bit_xor, popcount, shl and shr": "clz",
    "results are written to parameters": "ret",
    "only counted loops: for i in range(n)": "While",
    "write `if condition:` and `else:`": "If Then Else",
    "write the reduction as a block with T.axis.reduce and T.init": "comm_reducer",
    "assert condition": "Assert",
}
REFUSED = {name: hint for hint, names in _INSTEAD.items() for name in names.split()}

# Pure functions of libraries and of LLVM that are functions of T, by their names without `llvm.` and the dtype.
OF_LIBRARIES = {"fabs": "abs", "rint": "nearbyint", "fmin": "min", "fmax": "max", "minnum": "min", "maxnum": "max"}
