import numpy as np

import codegen
from codegen.passes.lend_temporaries import lend_temporaries
from tests.codegen.llvm.test_scratch import through
from tir.interpreter import run
from tir.ir import Allocate, const_shape
from tir.traverse import walk_stmts


def lent(func, threads):
    """The parameters that a function gets, by name, with their shapes; what it computes stays."""
    target = codegen.Target("llvm", num_cores=threads)
    lowered = codegen.lower(func, target)
    found = lend_temporaries(lowered, target)
    more = found.buffers[len(func.buffers) :]
    x, z = (np.empty(const_shape(b), "float32") for b in func.buffers)
    x[...] = np.arange(x.size).reshape(x.shape) % 100
    run(found, x, z, *(np.full(const_shape(b), np.nan, "float32") for b in more))
    np.testing.assert_array_equal(z, 2 * (x[:, ::-1] + 1))
    assert not {b.name for b in more} & {s.buffer.name for s in walk_stmts(found.body) if isinstance(s, Allocate)}
    return {b.name: const_shape(b) for b in more}


def test_large_temporaries():
    assert lent(through(9_001), 1) == {"y": (1, 9_001)}
    assert lent(through(1_000), 1) == {}


def test_temporaries_of_threads_stay():
    assert lent(through(9_001, 3, parallel=True), 2) == {}
    assert lent(through(9_001, 3, parallel=True), 1) == {"y": (1, 9_001)}
