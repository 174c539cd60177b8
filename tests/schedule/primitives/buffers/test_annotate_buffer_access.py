from schedule import Schedule
from tests.programs import chain, matmul
from tests.schedule.harness import Checked
from tests.tir.script.parsing import parsed
from tir import structural_equal
from tir.script import parse


def test_a_larger_region_is_stated():
    s = Checked(matmul())
    s.annotate_buffer_access("C", 0, "read", lambda i, j, k: (i, (k - 1, k + 2)))
    s.annotate_buffer_access("C", "C", "write", "lambda i, j, k: (i, (0, 13))")
    s.becomes("""
        for i, j, k in T.grid(7, 13, 5):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(A[v_i, v_k - 1:v_k + 2], B[v_k, v_j])
                T.writes(C[v_i, 0:13])
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_refusals():
    Checked(chain()).refuses("""
        annotate_buffer_access('C', 0, 'read', 'lambda i, j: (i, (1, 13))'): `C` accesses `v_j .. v_j` of dimension 1 of `B`, which is not shown to be within `1 .. 12`
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accesses B
          hint: state a region that contains it
    """)
    Checked(chain()).refuses("""
        annotate_buffer_access('C', 0, 'read', 'lambda i, j: (i, (0, 100))'): `0 .. 99` is beyond dimension 1 of `B`, which is `0 .. 12`
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accesses B
          hint: a region may be so at the edges, not in every iteration
    """)
    Checked(chain()).refuses("""
        annotate_buffer_access('C', 0, 'read', 'lambda i, j: i'): `B` has 2 dimension(s), but there are 1 range(s)
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accesses B
    """)
    Checked(chain()).refuses("""
        annotate_buffer_access('C', 0, 'read', 'lambda i: (i, i)'): `gen_new_ranges` 'lambda i: (i, i)' takes 1 indices, and there are 2
          hint: lambda i0, i1: ...
    """)
    Checked(chain()).refuses("""
        annotate_buffer_access('C', 0, 'readwrite', 'lambda i, j: (i, j)'): `buf_type` is 'read' or 'write', got 'readwrite'
    """)
    Checked(chain()).refuses("""
        annotate_buffer_access('C', 0, 'read', 'lambda i, j: (i, 0.5)'): `gen_new_ranges` gives no indices: an index must be an integer, got T.float32(0.5) of dtype float32
           14 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accesses B
    """)


def test_what_is_allocated_inside_is_nobody_else_s():
    inner = parsed(
        """
        for i in range(7):
            with T.block("rows"):
                vi = T.axis.spatial(7, i)
                row = T.alloc_buffer((13,))
                for j in range(13):
                    row[j] = A[vi, j]
                for j in range(13):
                    B[vi, j] = row[j]
        """
    )
    Checked(inner).refuses("""
        annotate_buffer_access('rows', 'row', 'write', 'lambda i: (0, 13)'): `row` is allocated inside of `rows`, and nothing outside has it
            8 |         with T.block("rows"):
              |         ^^^^^^^^^^^^^^^^^^^^^ allocates row
          hint: name a block or loop inside of `rows`
    """)
    s = Schedule(inner)
    s.annotate_buffer_access("rows", "B", "write", lambda i: (i, (0, 13)))
    assert "T.writes(B[vi, 0:13])" in s.script


def test_whole_dimensions_have_the_dtype_of_their_size():
    s = Schedule(
        parse("""
            @T.prim_func
            def main(A: T.Buffer((7,)), B: T.Buffer((T.int64(4),)), P: T.Buffer((7,), "uint8"), C: T.Buffer((7,))):
                for i in range(7):
                    with T.block("C"):
                        vi = T.axis.spatial(7, i)
                        C[vi] = A[vi] + B[T.min(P[vi], T.uint8(3))] + B[P[0]]
        """)
    )
    s.annotate_buffer_access("C", "A", "read", lambda i: i)
    assert "T.reads(A[vi], B[T.int64(0):T.int64(4)], P[0:7])" in s.script
    assert structural_equal(parse(s.script), s.func)
