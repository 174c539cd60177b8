"""Blocks of scripts: their axes, what they state, and the block of the function."""

from __future__ import annotations

from tests.schedule.harness import without_header
from tests.tir.script.parsing import Body, parsed
from tir.ir import Block, Seq


def test_a_block_with_everything():
    Body("""
        for io, ii, ko in T.grid(2, 4, 13):
            with T.block("B"):
                vi = T.axis.spatial(7, io * 4 + ii)
                vk = T.axis.R(13, ko)
                T.where(io * 4 + ii < 7)
                T.reads(A[vi, 0:13], B)
                T.writes([B[vi, vk:vk + 1]])
                T.block_attr({"pragma": 1})
                T.block_attr({"again": T.bool(False)})
                S = T.alloc_buffer((1,), "float32", scope="local")
                with T.init():
                    B[vi, 0] = T.float32(0)
                S[0] = A[vi, vk]
                B[vi, 0] = B[vi, 0] + S[0]
    """).becomes("""
        # with T.block("root"):
        for io, ii, ko in T.grid(2, 4, 13):
            with T.block("B"):
                vi = T.axis.spatial(7, io * 4 + ii)
                vk = T.axis.reduce(13, ko)
                T.where(io * 4 + ii < 7)
                T.reads(A[vi, 0:13], B[0:7, 0:13])
                T.writes(B[vi, vk])
                T.block_attr({"again": T.bool(False), "pragma": 1})
                S = T.alloc_buffer((1,), scope="local")
                with T.init():
                    B[vi, 0] = T.float32(0.0)
                S[0] = A[vi, vk]
                B[vi, 0] = B[vi, 0] + S[0]
    """)


def test_nested_blocks_as_blockize_makes_them():
    body = """
        # with T.block("root"):
        for io, ko in T.grid(1, 13):
            with T.block("B_o"):
                vio, vko = T.axis.remap("SR", [io, ko])
                T.reads(A[vio * 7:vio * 7 + 7, vko])
                T.writes(B[vio * 7:vio * 7 + 7, 0])
                with T.init():
                    for i_init in range(7):
                        with T.block("B_init"):
                            vi = T.axis.spatial(7, i_init)
                            T.reads()
                            T.writes(B[vio * 7 + vi, 0])
                            B[vio * 7 + vi, 0] = T.float32(0.0)
                for i in range(7):
                    with T.block("B"):
                        vi = T.axis.spatial(7, i)
                        B[vio * 7 + vi, 0] = B[vio * 7 + vi, 0] + A[vio * 7 + vi, vko]
        """
    Body(body).becomes(body)


def test_the_root_block_is_the_function():
    written_out = """
        T.func_attr({"tir.noalias": T.bool(True)})
        with T.block("root"):
            T.reads()
            T.writes()
            T.block_attr({"meta_schedule.parallel": 8})
            C = T.alloc_buffer((7,))
            for i in range(7):
                with T.block("C"):
                    vi = T.axis.spatial(7, i)
                    C[vi] = A[vi, 0]
            B[0, 0] = C[0]
        """
    func = parsed(written_out)
    assert [b.name for b in func.allocs] == ["C"]
    assert func.attrs == (("meta_schedule.parallel", 8), ("tir.noalias", True))
    assert isinstance(func.body, Seq)


def test_a_block_called_root_inside_the_root():
    func = parsed('with T.block("root"):\n    with T.block("root"):\n        B[0, 0] = A[0, 0]')
    assert func.body == Block("root", (), func.body.body)
    assert without_header(func.script()).splitlines()[2:] == [
        '    with T.block("root"):',
        '        with T.block("root"):',
        "            B[0, 0] = A[0, 0]",
    ]


def test_axes_of_every_kind():
    func = parsed(
        """
        for i, j, k, l, m in T.grid(7, 2, 3, 4, 5):
            with T.block():
                a, b = T.axis.remap("SR", [i, j])
                c = T.axis.remap("O", [k])
                d = T.axis.scan(4, l)
                e = T.axis.opaque(T.int64(5), T.Cast("int64", m), dtype="int64")
                B[a, 0] = A[a, b + c + d + T.Cast("int32", e)]
        """
    )
    (block,) = [n for n in [func.body.body.body.body.body.body] if isinstance(n, Block)]
    assert block.name == "block"
    assert [(it.var.name, it.axis.value, it.var.dtype) for it in block.iters] == [
        ("a", "S", "int32"), ("b", "R", "int32"), ("c", "O", "int32"), ("d", "O", "int32"), ("e", "O", "int64"),
    ]  # fmt: skip


def test_axes_that_start_elsewhere_are_shifted():
    Body("""
        for i in range(2, 7):
            for j in range(1, 13):
                with T.block("B"):
                    vi = T.axis.spatial((2, 7), i)
                    vj = T.axis.remap("S", [j])
                    T.where(j < 12)
                    B[vi, vj] = A[vi - 2, vj - 1]
    """).becomes("""
        # with T.block("root"):
        for i, j in T.grid(5, 12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(j + 1 < 12)
                B[vi + 2, vj + 1] = A[vi + 2 - 2, vj + 1 - 1]
    """)


def test_lets_of_a_block_that_its_header_uses():
    Body(
        """
        for i in range(7):
            with T.block("B"):
                x = i * 1
                vi = T.axis.spatial(7, x)
                y = vi + 0
                T.writes(B[y, 0:13])
                B[y, 0] = A[y, 1]
    """,
        sound=False,
    ).becomes("""
        # with T.block("root"):
        for i in range(7):
            with T.block("B"):
                vi = T.axis.spatial(7, i * 1)
                T.writes(B[vi + 0, 0:13])
                x: T.int32 = i * 1
                y: T.int32 = vi + 0
                B[y, 0] = A[y, 1]
    """)


def test_blocks_with_strange_names():
    func = parsed("with T.block('a \"b\" \\\\ c\\n'):\n    B[0, 0] = A[0, 0]")
    assert func.body.name == 'a "b" \\ c\n'
