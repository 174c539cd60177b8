import pytest

from codegen import lower
from codegen.target import Target
from schedule import Schedule
from tests.programs import chain, matmul
from tests.schedule.harness import Checked, call_in, same_numbers
from tir import te
from tir.ir import Allocate, const_shape
from tir.traverse import walk_stmts


def vectors(n: int = 13):
    """C = 3 (A + 1), of one dimension."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((n,), lambda i: B[i] * 3.0, name="C")
    return te.create_prim_func([A, C])


def cube():
    """C = 3 (A + 1), of three dimensions."""
    A = te.placeholder((3, 5, 7), name="A")
    B = te.compute((3, 5, 7), lambda i, j, k: A[i, j, k] + 1.0, name="B")
    C = te.compute((3, 5, 7), lambda i, j, k: B[i, j, k] * 3.0, name="C")
    return te.create_prim_func([A, C])


def shapes(func) -> dict[str, tuple[int, ...]]:
    """The shapes of the temporaries as the backend allocates them."""
    lowered = lower(func, Target("llvm"), after="compact_buffers")
    assert lowered.attrs == func.attrs
    return {s.buffer.name: const_shape(s.buffer) for s in walk_stmts(lowered.body) if isinstance(s, Allocate)}


def test_the_block_is_annotated():
    s = Checked(chain())
    s.storage_align("B", 0, 0, 16, 4)
    s.becomes("""
        B = T.alloc_buffer((7, 13))
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                T.block_attr({"buffer_dim_align": [[0, 0, 16, 4]]})
                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        ...
    """)


def test_a_later_call_replaces_the_first():
    s = Checked(cube())
    s.storage_align("B", 0, 0, 16, 4)
    s.storage_align("B", "B", 1, 8, 0)
    s.storage_align("B", 0, -3, 32, 8)
    s.becomes("""
        B = T.alloc_buffer((3, 5, 7))
        for i, j, k in T.grid(3, 5, 7):
            with T.block("B"):
                v_i, v_j, v_k = T.axis.remap("SSS", [i, j, k])
                T.block_attr({"buffer_dim_align": [[0, 0, 32, 8], [0, 1, 8, 0]]})
                B[v_i, v_j, v_k] = A[v_i, v_j, v_k] + T.float32(1.0)
        ...
    """)


@pytest.mark.parametrize(
    "message",
    [
        # a parameter
        """
storage_align('C', 0, 0, 16, 4): `C` is a parameter of the function, and laid out by the caller
   14 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ writes C
  hint: cache_write('C', 0, 'global')
""",
        # an axis that is not there
        """
storage_align('B', 0, 2, 16, 4): `B` has 2 dimension(s), got axis 2
   10 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes B
""",
        # an offset beyond the factor
        """
storage_align('B', 0, 0, 16, 16): `factor` must be positive and `offset` from 0 to below it, got 16 and 16
   10 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes B
""",
        # a factor of zero
        """
storage_align('B', 0, 0, 0, 0): `factor` must be positive and `offset` from 0 to below it, got 0 and 0
   10 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes B
""",
        # a buffer that is only read
        """
storage_align('B', 'A', 0, 16, 4): `B` writes no buffer called `A`, but `B`
   10 |         with T.block("B"):
      |         ^^^^^^^^^^^^^^^^^^ writes `B`
""",
    ],
    ids=call_in,
)
def test_refusals(message):
    Checked(chain()).refuses(message)


def test_the_last_axis_is_refused():
    s = Checked(vectors())
    s.refuses("""
        storage_align('B', 0, -1, 16, 4): the last axis of `B` has the stride 1, which cannot be changed
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
    """)


def test_the_backend_makes_rows_longer():
    before = chain()
    s = Schedule(before)
    assert shapes(s.func) == {"B": (7, 13)}
    s.storage_align("B", 0, 0, 16, 4)
    assert shapes(s.func) == {"B": (7, 20)}
    s.storage_align("B", 0, 0, 8, 0)
    assert shapes(s.func) == {"B": (7, 16)}
    s.storage_align("B", 0, 0, 13, 0)
    assert shapes(s.func) == {"B": (7, 13)}


def test_the_rows_of_a_tile_are_aligned():
    before = chain()
    s = Schedule(before)
    s.split("i_1", [None, 3])
    s.compute_at("B", "i_1_0")
    s.storage_align("B", "B", -2, 8, 1)
    assert shapes(s.func) == {"B": (3, 17)}
    same_numbers(before, s.func)


def test_a_plane_of_three_dimensions():
    before = cube()
    s = Schedule(before)
    s.storage_align("B", 0, 0, 32, 8)
    s.storage_align("B", 0, 1, 4, 0)
    assert shapes(s.func) == {"B": (3, 5, 8)}
    s.storage_align("B", 0, 0, 32, 16)
    assert shapes(s.func) == {"B": (3, 6, 8)}
    same_numbers(before, s.func)


def test_the_output_of_a_reduction():
    before = matmul()
    s = Schedule(before)
    s.cache_write("C", 0, "global")
    s.storage_align("C", 0, 0, 16, 1)
    assert shapes(s.func) == {"C_global": (7, 17)}
    same_numbers(before, s.func)
