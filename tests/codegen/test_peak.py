"""What the machine can do: that the copy which is timed is one. No rate is asserted."""

from __future__ import annotations

import numpy as np
import pytest

from codegen import peak


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_copy_that_is_timed_copies_everything(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def arrays(nbytes: int):
        made.extend(np.random.default_rng(0).integers(0, 255, (2, nbytes + 64), dtype=np.uint8))
        made[:] = [a[(start := -a.ctypes.data % 64) : start + nbytes] for a in made]
        return tuple(made)

    monkeypatch.setattr(peak, "_arrays", arrays)
    monkeypatch.setattr(peak, "LARGEST", 1 << 18)
    assert peak.copy_bandwidth(threads=threads) > 0
    source, destination = made
    assert len(source) > (1 << 18) * 0.9
    np.testing.assert_array_equal(source, destination)


def test_the_bandwidth_is_of_this_processor() -> None:
    with pytest.raises(ValueError, match="measured on this processor"):
        peak.copy_bandwidth("cuda -arch sm_90")
