"""tir.diff: what a schedule changed."""

from __future__ import annotations

import pytest

import tir
from tir import te


def copied():
    A = te.placeholder((7, 13), name="A")
    return te.create_prim_func([A, te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")])


def test_shows_what_changed():
    before = copied()
    s = tir.Schedule(before)
    s.parallel("i")
    assert (
        tir.diff(before, s.func, context=1)
        == """\
--- before
+++ after
@@ -4,5 +4,6 @@
     # with T.block("root"):
-    for i, j in T.grid(7, 13):
-        with T.block("B"):
-            v_i, v_j = T.axis.remap("SS", [i, j])
-            B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
+    for i in T.parallel(7):
+        for j in range(13):
+            with T.block("B"):
+                v_i, v_j = T.axis.remap("SS", [i, j])
+                B[v_i, v_j] = A[v_i, v_j] + T.float32(1.0)
"""
    )


def test_is_empty_where_nothing_changed():
    assert tir.diff(copied(), copied()) == ""


def test_refuses_a_negative_context():
    with pytest.raises(ValueError, match=r"^context must be at least 0 lines, got -1$"):
        tir.diff(copied(), copied(), context=-1)
