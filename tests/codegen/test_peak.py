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
    monkeypatch.setattr(peak, "MAX_COPIED_BYTES", 1 << 18)
    assert peak.copy_bandwidth(threads=threads) > 0
    source, destination = made
    assert len(source) > (1 << 18) * 0.9
    np.testing.assert_array_equal(source, destination)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_call_copies_everything(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[np.ndarray] = []
    arrays = peak._arrays.__wrapped__
    monkeypatch.setattr(peak, "_arrays", lambda nbytes: made.extend(arrays(nbytes)) or tuple(made))
    copy = peak.copier(109 << 10, threads=threads)
    source, destination = made
    assert (109 << 10) - 512 * threads < source.size <= 109 << 10
    source[:] = np.random.default_rng(0).integers(0, 255, source.size, dtype=np.uint8)
    destination[:] = 0
    copy()
    np.testing.assert_array_equal(source, destination)


def test_the_bandwidth_is_of_this_processor() -> None:
    with pytest.raises(ValueError, match="measured on this processor"):
        peak.copy_bandwidth("cuda -arch sm_90")
    with pytest.raises(ValueError, match="measured on this processor"):
        peak.copier(1 << 20, "cuda -arch sm_90")
    with pytest.raises(ValueError, match="13 bytes are too few for 2 threads: each copies"):
        peak.copier(13, threads=2)
