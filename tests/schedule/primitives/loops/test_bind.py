import pytest

from schedule import Schedule, ScheduleError
from tests.programs import matmul, vector
from tests.schedule.harness import Checked, same_numbers
from tir import te


def test_blocks_and_threads():
    s = Checked(matmul())
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    s.becomes("""
        for i in T.thread_binding(7, thread="blockIdx.x"):
            for j in T.thread_binding(13, thread="threadIdx.x"):
                for k in range(5):
                    with T.block("C"):
                        ...
    """)


def test_virtual_threads():
    s = Checked(vector(13))
    i_0, i_1 = s.split("i", [None, 4])
    s.bind(i_1, "vthread.x")
    s.bind(i_0, "threadIdx.y")
    s.becomes("""
        for i_0 in T.thread_binding(4, thread="threadIdx.y"):
            for i_1 in T.thread_binding(4, thread="vthread.x"):
                ...
    """)


def test_refusals():
    s = Checked(matmul())
    s.refuses("""
        bind('i', 'threadIdx.w'): `threadIdx.w` is no thread axis; these are blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, vthread.x, vthread.y, vthread.z, vthread
          hint: did you mean `threadIdx.z`?
    """)
    s = Checked(matmul())
    s.refuses("""
        bind('k', 'blockIdx.x'): `k` drives the reduction axis `v_k` of `C`, so its iterations depend on each other
            8 |     for i, j, k in T.grid(7, 13, 5):
              |               ^ cannot be bound
            9 |         with T.block("C"):
              |         ^^^^^^^^^^^^^^^^^^ accumulates over it
          hint: rfactor('k', 0) gives each iteration its own partial result
    """)
    s = Checked(matmul())
    s.bind("i", "threadIdx.x")
    s.refuses("""
        bind('j', 'threadIdx.x'): `i` is bound to threadIdx.x already, and of two loops inside one another only one can be
            8 |     for i in T.thread_binding(7, thread="threadIdx.x"):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ outer loop
            9 |         for j, k in T.grid(13, 5):
              |             ^ inside it
          hint: fuse the two before binding, or bind this one to another axis
    """)
    s = Checked(matmul())
    s.bind("i", "threadIdx.x")
    s.refuses("""
        bind('j', 'blockIdx.x'): threads cannot start blocks: a loop bound to blockIdx must be outside of those bound to threadIdx
            8 |     for i in T.thread_binding(7, thread="threadIdx.x"):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ would be threads
            9 |         for j, k in T.grid(13, 5):
              |             ^ would be blocks
          hint: reorder first
    """)
    s = Checked(matmul())
    s.parallel("i")
    s.refuses("""
        bind('i', 'blockIdx.x'): `i` is already parallel
            8 |     for i in T.parallel(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^ parallel
          hint: serial('i') takes the mark away
    """)
    s = Checked(matmul())
    s.vectorize("i")
    s.refuses("""
        bind('j', 'threadIdx.x'): `j` is inside the vectorized loop `i`
            8 |     for i in T.vectorized(7):
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^ vectorized
            9 |         for j, k in T.grid(13, 5):
              |             ^ inside it
          hint: lanes of a vector cannot start threads; bind an outer loop
    """)


def test_threads_reduce_together():
    s = Checked(matmul())
    s.bind("k", "threadIdx.x")
    s.becomes("""
        for i, j in T.grid(7, 13):
            for k in T.thread_binding(5, thread="threadIdx.x"):
                with T.block("C"):
                    ...
    """)


def test_threads_reduce_one_block_with_its_init():
    s = Schedule(matmul())
    s.decompose_reduction("C", "i")
    loop = s.get_loops("C_update")[-1]
    with pytest.raises(ScheduleError, match=f"`{loop}` drives the reduction axis `v_k` of `C_update`"):
        s.bind(loop, "threadIdx.x")
    s = Schedule(matmul())
    mixed = s.fuse("j", "k")
    with pytest.raises(ScheduleError, match=f"`{mixed}` drives the reduction axis `v_k` of `C`"):
        s.bind(mixed, "threadIdx.x")


def test_fused_and_split_loops_are_told_apart_by_enumeration():
    A = te.placeholder((7, 5, 3), "float32", name="A")
    s = Schedule(te.create_prim_func([A, te.compute((7, 5, 3), lambda i, j, k: A[i, j, k] * te.const(2, "float32"), name="B")]))
    _, inner = s.split(s.fuse(*s.get_loops("B")), [None, 32])
    s.bind(inner, "threadIdx.x")
    assert 'T.thread_binding(32, thread="threadIdx.x")' in s.script


def test_the_steps_of_each_thread_come_inside_its_loop():
    s = Schedule(matmul())
    outer, inner = s.split("k", [None, 2])
    s.bind(inner, "threadIdx.x")
    assert s.get_loops("C") == ["i", "j", inner, outer]
    same_numbers(matmul(), s.func)


def test_threads_do_not_go_on_with_a_reduction_of_a_loop_around():
    s = Schedule(matmul())
    outer, inner = s.split("k", [None, 2])
    s.reorder(outer, "j", inner)
    with pytest.raises(ScheduleError, match=f"`{inner}` drives the reduction axis `v_k` of `C`"):
        s.bind(inner, "threadIdx.x")


def test_a_bound_loop_may_be_bound_again_or_unrolled():
    s = Schedule(matmul())
    s.bind("i", "threadIdx.x")
    s.bind("j", "threadIdx.y")
    s.bind("i", "blockIdx.x")
    s.unroll("j")
    assert s.script.count("thread_binding") == 1 and 'for i in T.thread_binding(7, thread="blockIdx.x"):' in s.script
    assert "for j in T.unroll(13):" in s.script
    same_numbers(matmul(), s.func)
