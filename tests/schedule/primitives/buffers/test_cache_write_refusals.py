"""What cache_write refuses, and what it says."""

from tests.programs import chain, matmul, stencil, window_sums
from tests.schedule.harness import Checked
from tests.schedule.primitives.buffers.programs import READ_IN_PART
from tir.ir import Axis, Block, Buffer, Const, For, Iter, PrimFunc, Store, Var, seq
from tir.script import parse
from tir.traverse import blocks, replace_stmt


def test_refuses_a_part_that_nobody_reads():
    before = parse(READ_IN_PART.replace("X[v_i + 2]", "A[v_i + 2]").replace("X[v_i] =", "X[12 - v_i] ="))
    s = Checked(before)
    s.refuses("""
        cache_write('X', 0, 'local'): it cannot be shown which part of `X` is written by `X`: its axes are not those of the buffer
            9 |         with T.block("X"):
              |         ^^^^^^^^^^^^^^^^^^ writes X
          hint: each spatial axis must index one dimension of `X`
    """)


def test_refuses_unknown_buffers():
    s = Checked(matmul())
    s.refuses("""
        cache_write('C', 1, 'local'): `C` writes 1 buffer(s), `C`: number 1 does not exist
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: numbers start at 0; a name does as well
    """)
    s.refuses("""
        cache_write('C', 'A', 'local'): `C` writes no buffer called `A`, but `C`
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes `C`
    """)
    s.refuses("""
        cache_write('C', 0, ''): no storage scope is named ''; there are: global, shared, shared.dyn, \
shared.swizzled, warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
    """)
    s.refuses("""
        cache_write('C', 0, 'local', ['D']): `D` is not a block that reads `C`; these are none
    """)


def test_refuses_a_decomposed_reduction():
    s = Checked(matmul())
    s.decompose_reduction("C", "k")
    s.refuses("""
        cache_write('C_update', 0, 'local'): `C_init` writes `C` too, so `C_update` cannot be given a copy to write
            9 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes C
           10 |             v_i, v_j = T.axis.remap("SS", [i, j])
           11 |             C[v_i, v_j] = T.float32(0.0)
           12 |         for k in range(5):
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: do this before decompose_reduction
    """)
    s.refuses("""
        cache_write('C_init', 0, 'local'): `C_update` writes `C` too, so `C_init` cannot be given a copy to write
            9 |         with T.block("C_init"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^ writes C
           10 |             v_i, v_j = T.axis.remap("SS", [i, j])
           11 |             C[v_i, v_j] = T.float32(0.0)
           12 |         for k in range(5):
           13 |             with T.block("C_update"):
              |             ^^^^^^^^^^^^^^^^^^^^^^^^^ writes C
          hint: do this before decompose_reduction
    """)


def test_refuses_a_reader_before():
    A, B = Buffer("A", (Const(7),)), Buffer("B", (Const(7),))
    v = Var("v")
    first = For(Var("i"), Const(7), Block("B", (Iter(v, Const(7), Axis.SPATIAL, Var("i")),), Store(B, (v,), A[v])))
    second = For(
        Var("j"), Const(7), Block("A", (Iter(v, Const(7), Axis.SPATIAL, Var("j")),), Store(A, (v,), Const(0.0, "float32")))
    )
    s = Checked(PrimFunc("main", (A, B), seq(first, second)))
    s.refuses("""
        cache_write('A', 0, 'local'): `B` reads `A` before `A` writes it
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ first
            9 |             v = T.axis.spatial(7, i)
           10 |             B[v] = A[v]
           11 |     for j in range(7):
           12 |         with T.block("A"):
              |         ^^^^^^^^^^^^^^^^^^ then
          hint: let `B` read another buffer, as it needs the values of before
    """)


def test_refuses_a_part_of_an_output_that_is_not_exact():
    s = Checked(chain())
    s.split("i_1", [None, 4])
    C = blocks(s.func)[1]
    s = Checked(replace_stmt(s.func, C, C.with_(predicate=Var("i_1_0") < 1)))
    s.refuses("""
        cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: `v_i` = `i_1_0 * 4 + i_1_1` takes 4 values of 7
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
    """)


def test_refuses_places_that_are_not_its_axes():
    func = chain()
    C = blocks(func)[1]
    v_i, v_j = (it.var for it in C.iters)
    s = Checked(replace_stmt(func, C, C.with_(body=C.body.with_(indices=(6 - v_i, v_j)))))
    s.refuses("""
        cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: its axes are not those of the buffer
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: each spatial axis must index one dimension of `C`
    """)


def test_refuses_overlapping_windows_in_a_shared_loop():
    before = stencil()
    s = Checked(before)
    io, _ = s.split(s.get_loops("C")[0], [None, 4])
    s.compute_at("P", io)
    s.refuses("""
        cache_write('P', 0, 'local'): it cannot be shown which part of `P` is written by `P` in an iteration of `i_2_0`: `v_i` = `i_2_0 * 4 + ax0` repeats values
           14 |     for i_2_0 in range(4):
              |     ^^^^^^^^^^^^^^^^^^^^^^ the loop
           15 |         for ax0 in range(6):
           16 |             with T.block("P"):
              |             ^^^^^^^^^^^^^^^^^^ writes P
    """)


def test_refuses_a_consumer_of_what_is_written_later():
    """The parameter B had values before, which the copy has not."""
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            for i in range(7):
                with T.block("B"):
                    vi = T.axis.spatial(7, i)
                    B[vi] = A[vi] + T.float32(1.0)
                with T.block("C"):
                    vi = T.axis.spatial(7, i)
                    C[vi] = B[vi + 1] * T.float32(3.0)
    """)
    s.refuses("""
        cache_write('B', 0, 'global', ['C']): `C` may read elements of `B` that `B` has not written by then, and the copy lacks
            8 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
            9 |             vi = T.axis.spatial(7, i)
           10 |             B[vi] = A[vi] + T.float32(1.0)
           11 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ reads B
          hint: leave `C` out of consumer_blocks: it then reads `B` itself
    """)


def reduced_in_blocks() -> Checked:
    """Sums that go on in the next iteration of an enclosing block."""
    s = Checked(window_sums())
    s.compute_at("B", "k")
    s.blockize(["B", "C"])
    return s


def test_refuses_a_reduction_that_goes_on():
    reduced_in_blocks().refuses("""
        cache_write('C', 0, 'local'): `C` goes on reducing over `v_k` in other iterations of `outer_B_C_`, in which its copy is allocated
           10 |         with T.block("outer_B_C_"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^ its `v_k_1` drives the reduction
              ...
           15 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ reduces
          hint: do this before blockize
    """)
    s = reduced_in_blocks()
    with s.refusal("""
        reindex('C', ['write', 0]): `C` goes on reducing over `v_k` in other iterations of `outer_B_C_`, in which its copy is allocated
           10 |         with T.block("outer_B_C_"):
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^ its `v_k_1` drives the reduction
              ...
           15 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ reduces
          hint: do this before blockize
    """):
        s.reindex("C", ("write", 0))


BRANCHES = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32"), D: T.Buffer((7,), "float32")):
    for i in range(7):
        if A[i] > T.float32(0):
            with T.block("C"):
                v = T.axis.spatial(7, i)
                C[v] = A[v] * T.float32(2)
        else:
            with T.block("D"):
                v = T.axis.spatial(7, i)
                D[v] = C[v] + T.float32(1)
"""


def test_refuses_a_consumer_in_the_other_branch():
    """It reads what `C` held before."""
    Checked(parse(BRANCHES)).refuses("""
        cache_write('C', 0, 'local', ['D']): `D` may read elements of `C` that `C` has not written by then, and the copy lacks
            9 |             with T.block("C"):
              |             ^^^^^^^^^^^^^^^^^^ writes C
           10 |                 v = T.axis.spatial(7, i)
           11 |                 C[v] = A[v] * T.float32(2.0)
           12 |         else:
           13 |             with T.block("D"):
              |             ^^^^^^^^^^^^^^^^^^ reads C
          hint: leave `D` out of consumer_blocks: it then reads `C` itself
    """)


ANYWHERE = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), I: T.Buffer((1,), "int32"), C: T.Buffer((7, 9), "float32")):
    for i in range(7):
        with T.block("C"):
            v = T.axis.spatial(7, i)
            C[v, {place}] = A[v] * T.float32(2)
        with T.block("I"):
            v = T.axis.opaque(7, i)
            I[0] = v
"""


def test_refuses_places_that_are_others_behind_the_nest():
    Checked(parse(ANYWHERE.format(place="I[0]"))).refuses("""
        cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: its axes are not those of the buffer
            8 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: each spatial axis must index one dimension of `C`
    """)
    Checked(parse(ANYWHERE.format(place="i"))).refuses("""
        cache_write('C', 0, 'local'): it cannot be shown which part of `C` is written by `C`: its place depends on `i`, which is not one of its axes
            8 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
    """)


OWN_IN_EACH = """
@T.prim_func
def main(A: T.Buffer((7,), "float32"), D: T.Buffer((3, 7), "float32")):
    C = T.alloc_buffer((7,))
    for i in T.parallel(3):
        for j in range(7):
            with T.block("C"):
                v = T.axis.spatial(7, j)
                C[v] = A[v] * T.float32(2)
        for j in range(7):
            with T.block("D"):
                v, w = T.axis.remap("SS", [i, j])
                D[v, w] = C[w] + T.float32(1)
"""


def test_refuses_a_copy_behind_threads_that_have_one_each():
    message = """
{}: `i` is parallel, and each of its iterations has a `C` of its own, so a copy after it has no source
    8 |     for i in T.parallel(3):
      |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
    9 |         for j in range(7):
   10 |             with T.block("C"):
      |             ^^^^^^^^^^^^^^^^^^ writes C
  hint: serial('i') first, or leave readers in the loop to `C`
"""
    Checked(OWN_IN_EACH).refuses(message.format("cache_write('C', 0, 'local', ['D'])"))
    Checked(OWN_IN_EACH.replace("C[w]", "A[w]")).refuses(message.format("reindex('C', ['write', 0])"))
