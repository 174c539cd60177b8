"""Division of axes: shares of threads, sizes that are tried. Balanced blocks are tested with tiles."""

from __future__ import annotations

import pytest

from schedule.templates.division import MIN_EACH, doubled, shares_are_equal, tried


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_shares_are_equal_where_none_waits_for_more_than_a_quarter(threads):
    for units in range(1, 5 * threads * MIN_EACH):
        largest = -(-units // threads)
        if shares_are_equal(units, threads):
            assert largest * threads <= (1 + 1 / MIN_EACH) * units
        else:
            assert largest * threads > units and units < MIN_EACH * threads
    assert shares_are_equal(MIN_EACH * threads, threads) and shares_are_equal(MIN_EACH * threads + 1, threads)


@pytest.mark.parametrize(
    ("most", "found"), [(-1, []), (0, []), (1, [1]), (2, [1, 2]), (3, [1, 2]), (4, [1, 2, 4]), (9, [1, 2, 4, 8])]
)
def test_powers_of_two(most, found):
    assert doubled(most) == found
    assert tried(3, most, 5) == [*dict.fromkeys((15, *(5 * n for n in found)))]
    assert all(1 <= n <= 7 for n in tried(3, most, 5, 7))
