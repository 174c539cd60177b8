from schedule import Schedule
from tests.schedule.harness import check, refuse
from tests.schedule.programs import matmul, vector


def test_blocks_and_threads():
    before = matmul()
    s = Schedule(before)
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    check(
        s,
        before,
        """
        @T.prim_func
        def main(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 13), "float32"), C: T.Buffer((7, 13), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i in T.thread_binding(7, thread="blockIdx.x"):
                for j in T.thread_binding(13, thread="threadIdx.x"):
                    for k in range(5):
                        with T.block("C"):
                            v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                            with T.init():
                                C[v_i, v_j] = T.float32(0.0)
                            C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
        """,
    )


def test_virtual_threads():
    before = vector(13)
    s = Schedule(before)
    i_0, i_1 = s.split("i", [None, 4])
    s.bind(i_1, "vthread.x")
    s.bind(i_0, "threadIdx.y")
    check(
        s,
        before,
        """
        @T.prim_func
        def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i_0 in T.thread_binding(4, thread="threadIdx.y"):
                for i_1 in T.thread_binding(4, thread="vthread.x"):
                    with T.block("B"):
                        v_i = T.axis.spatial(13, i_0 * 4 + i_1)
                        T.where(i_0 * 4 + i_1 < 13)
                        B[v_i] = A[v_i] * T.float32(2.0)
        """,
    )


def test_refusals():
    s = Schedule(matmul())
    refuse(
        s,
        lambda s: s.bind("i", "threadIdx.w"),
        """
bind('i', 'threadIdx.w'): `threadIdx.w` is no thread axis; these are blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, vthread.x, vthread.y, vthread.z, vthread
  hint: did you mean `threadIdx.z`?
""",
    )
    s = Schedule(matmul())
    refuse(
        s,
        lambda s: s.bind("k", "threadIdx.x"),
        """
bind('k', 'threadIdx.x'): `k` drives the reduction axis `v_k` of `C`, so its iterations depend on each other
    8 |     for i, j, k in T.grid(7, 13, 5):
      |               ^ cannot be bound
    9 |         with T.block("C"):
      |         ^^^^^^^^^^^^^^^^^^ accumulates over it
  hint: rfactor('k', 0) gives each iteration its own partial result
""",
    )
    s = Schedule(matmul())
    s.bind("i", "threadIdx.x")
    refuse(
        s,
        lambda s: s.bind("j", "threadIdx.x"),
        """
bind('j', 'threadIdx.x'): `i` is bound to threadIdx.x already, and of two loops inside one another only one can be
    8 |     for i in T.thread_binding(7, thread="threadIdx.x"):
      |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ outer loop
    9 |         for j, k in T.grid(13, 5):
      |             ^ inside it
  hint: fuse the two before binding, or bind this one to another axis
""",
    )
    s = Schedule(matmul())
    s.bind("i", "threadIdx.x")
    refuse(
        s,
        lambda s: s.bind("j", "blockIdx.x"),
        """
bind('j', 'blockIdx.x'): threads cannot start blocks: a loop bound to blockIdx must be outside of those bound to threadIdx
    8 |     for i in T.thread_binding(7, thread="threadIdx.x"):
      |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ would be threads
    9 |         for j, k in T.grid(13, 5):
      |             ^ would be blocks
  hint: reorder first
""",
    )
    s = Schedule(matmul())
    s.bind("i", "threadIdx.x")
    refuse(
        s,
        lambda s: s.bind("i", "threadIdx.y"),
        """
bind('i', 'threadIdx.y'): `i` is already bound to threadIdx.x
    8 |     for i in T.thread_binding(7, thread="threadIdx.x"):
      |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ bound to threadIdx.x
""",
    )
    s = Schedule(matmul())
    s.parallel("i")
    refuse(
        s,
        lambda s: s.bind("i", "blockIdx.x"),
        """
bind('i', 'blockIdx.x'): `i` is already parallel
    8 |     for i in T.parallel(7):
      |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
  hint: split it, before it is marked, to mark its parts differently
""",
    )
    s = Schedule(matmul())
    s.vectorize("i")
    refuse(
        s,
        lambda s: s.bind("j", "threadIdx.x"),
        """
bind('j', 'threadIdx.x'): `j` is inside the vectorized loop `i`
    8 |     for i in T.vectorized(7):
      |     ^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
    9 |         for j, k in T.grid(13, 5):
      |             ^ inside it
  hint: lanes of a vector cannot start threads; bind an outer loop
""",
    )
