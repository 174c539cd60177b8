import pytest

from tests.programs import chain
from tests.schedule.harness import Checked


def test_temporary():
    s = Checked(chain())
    assert s.set_scope("B", 0, "shared") == "B_shared"
    s.becomes("""
        B_shared = T.alloc_buffer((7, 13), scope="shared")
        for i, j in T.grid(7, 13):
            with T.block("B"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                B_shared[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
        for i_1, j_1 in T.grid(7, 13):
            with T.block("C"):
                v_i, v_j = T.axis.remap("SS", [i_1, j_1])
                C[v_i, v_j] = B_shared[v_i, v_j] * T.float32(3.0)
    """)


def test_refuses_a_parameter():
    s = Checked(chain())
    s.refuses("""
        set_scope('C', 'C', 'local'): `C` is a parameter of the function, and stays where the caller put it
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ writes C
          hint: cache_write('C', 'C', 'local')
    """)


@pytest.mark.parametrize("call", [
    "set_scope('B', 0, 'sharde')",
    "cache_read('C', 0, 'sharde')",
    "cache_write('B', 0, 'sharde')",
    "pack('C', 0, 'sharde')",
    "stage_mem('C', 'B', 'tile', 'sharde')",
])  # fmt: skip
def test_refuses_an_unknown_scope(call):
    Checked(chain()).refuses(f"""
        {call}: no storage scope is named 'sharde'; did you mean shared? there are: global, shared, shared.dyn, \
shared.swizzled, warp, local, register, wmma.matrix_a, wmma.matrix_b, wmma.accumulator
    """)


def test_refuses_the_scope_that_it_has():
    s = Checked(chain())
    s.refuses("""
        set_scope('B', 0, 'global'): `B` is in scope 'global' already
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes B
          hint: there is nothing to change
    """)


def test_refuses_what_is_not_written():
    s = Checked(chain())
    s.refuses("""
        set_scope('B', 1, 'local'): `B` writes 1 buffer(s), `B`: number 1 does not exist
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ the block
          hint: numbers start at 0; a name does as well
    """)
    s.refuses("""
        set_scope('B', 'A', 'local'): `B` writes no buffer called `A`, but `B`
           10 |         with T.block("B"):
              |         ^^^^^^^^^^^^^^^^^^ writes `B`
    """)
