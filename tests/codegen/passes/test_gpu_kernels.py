"""What is known of a kernel: its blocks and threads."""

from codegen.passes.gpu_kernels import _blocks, threads_in
from tests.codegen.passes.test_thread_binding import TILE, program
from tir.ir import Const, Var


def test_a_launch_has_no_more_blocks_than_its_limit():
    assert _blocks(Const(7), 99)[1] == 6 and _blocks(Const(200), 99)[1] == _blocks(Var("n"), 99)[1] == 98


def test_threads_are_the_most_of_each_axis():
    assert threads_in(program(TILE).body) == {"threadIdx.x": 13, "threadIdx.y": 1, "threadIdx.z": 1}
