import pytest

from schedule import Schedule
from tests.programs import matmul
from tests.schedule.harness import Checked


@pytest.mark.parametrize("mark", ["parallel", "vectorize", "unroll", "bind"])
def test_the_mark_goes(mark):
    s = Checked(matmul())
    getattr(s, mark)("j", *(["threadIdx.x"] if mark == "bind" else []))
    s.serial("j")
    s.serial("i")  # which is
    assert s.func == matmul()
    s.split("j", [None, 4])
    s.becomes("""
        for i, j_0, j_1, k in T.grid(7, 4, 4, 5):
            with T.block("C"):
                v_i = T.axis.spatial(7, i)
                v_j = T.axis.spatial(13, j_0 * 4 + j_1)
                v_k = T.axis.reduce(5, k)
                T.where(j_0 * 4 + j_1 < 13)
                with T.init():
                    C[v_i, v_j] = T.float32(0.0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
    """)


def test_annotations_stay():
    s = Schedule(matmul())
    s.parallel("i")
    s.annotate("i", "schedule", "dynamic")
    s.serial("i")
    assert 'for i in T.serial(7, annotations={"schedule": "dynamic"}):' in s.script


def test_threads_that_may_wait_for_one_another():
    s = Checked("""
        @T.prim_func
        def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in T.thread_binding(8, thread="threadIdx.x"):
                T.evaluate(T.tvm_storage_sync("shared"))
                B[i] = A[i]
    """)
    s.refuses("""
        serial('i'): `i` is bound to a GPU axis, and `T.tvm_storage_sync` may be where its threads wait for one another
            6 |     for i in T.thread_binding(8, thread="threadIdx.x"):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ cannot be serial
            7 |         T.evaluate(T.tvm_storage_sync("shared"))
              |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a foreign call
    """)
