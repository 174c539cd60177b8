"""The rungs as schedules: each function takes the naive program (a Schedule of it) to the program of its rung, step by step.

Names are handles: `C`, `D` and `F` are the blocks, and their loops are asked for by block.
"""

from __future__ import annotations

from schedule import Schedule


def naive(s: Schedule) -> None:
    """Nothing is changed."""


def reorder(s: Schedule) -> None:
    """Move the columns of both products inward, and start the sums of a row in a loop of their own."""
    for product in ("C", "F"):
        row, column, k = s.get_loops(product)
        s.reorder(row, k, column)
        s.decompose_reduction(product, k)


def tile_k(s: Schedule) -> None:
    """Split the sums by 8 and move the outer parts all the way out."""
    for product in ("C", "F"):
        row, column, k = s.get_loops(product)
        k_0, k_1 = s.split(k, [None, 8])
        s.reorder(k_0, row, k_1, column)
        s.decompose_reduction(product, k_0)


def tile_all(s: Schedule) -> None:
    """Tile all three loops of both products, 16 by 8 by 8, and start the sums of a tile before it."""
    for product in ("C", "F"):
        _, _, k_0, *_ = _tiles(s, product)
        s.decompose_reduction(product, k_0)


def tile_whole(s: Schedule) -> None:
    """The same tiles, the sums started where they were."""
    for product in ("C", "F"):
        _tiles(s, product)


def merge_exp(s: Schedule) -> None:
    """Tile the exponent as the first product, and make one loop over tiles of the two."""
    tile_whole(s)
    _, l_0, *_ = s.get_loops("C")
    _, d_0, *_ = s.tile(*s.get_loops("D"), 16, 8)
    s.merge(l_0, d_0)


def merge_rows(s: Schedule) -> None:
    """Make one loop over the rows of both products: a row of the second needs rows of the first that are done by then."""
    merge_exp(s)
    s.merge(s.get_loops("C")[0], s.get_loops("F")[0])


def vectorize(s: Schedule) -> None:
    """Run the innermost loops of both products as vectors."""
    merge_rows(s)
    for product in ("C", "F"):
        s.vectorize(s.get_loops(product)[-1])


def decompose(s: Schedule) -> None:
    """Start the sums of a tile in nests of their own; these are vectors too."""
    vectorize(s)
    _, _, k_0, *_ = s.get_loops("C")
    s.decompose_reduction("C", k_0)
    _, _, l_0, *_ = s.get_loops("F")
    s.decompose_reduction("F", l_0)


def searched(s: Schedule) -> None:
    """Tile over four levels of rows and columns and two of the sums, as Ansor's search does, and copy F out tile by tile."""
    m_0, _, _, _, k_0, *_, l_3 = _levels(s, "C", rows=[None, 1, 32, 1], columns=[2, None, 2, 8], sums=[None, 16])
    s.vectorize(l_3)
    s.decompose_reduction("C", k_0)
    s.annotate(m_0, "pragma_auto_unroll_max_step", 512)

    copy = s.cache_write("F", 0, "global")
    m_0, _, _, n_1, k_0, *_, n_3 = _levels(s, "F", rows=[None, 4, 32, 2], columns=[1, None, 6, 32], sums=[None, 8])
    s.reverse_compute_at(copy, n_1)
    s.compute_at("D", m_0)
    s.vectorize(n_3)
    s.decompose_reduction("F", k_0)
    s.annotate(m_0, "pragma_auto_unroll_max_step", 512)


def packed(s: Schedule) -> None:
    """Sum 8 rows by 32 columns in registers, tile that for the caches, and pack what is read again for every tile of rows."""
    for product in ("C", "F"):
        row, column, k = s.get_loops(product)
        r_0, r_1, r_2 = s.split(row, [None, 32, 8])
        c_0, c_1, c_2 = s.split(column, [None, 2, 32])
        k_0, k_1 = s.split(k, [None, 256])
        s.reorder(r_0, c_0, k_0, c_1, r_1, k_1, r_2, c_2)
        s.unroll(r_2)
        s.vectorize(c_2)
        copy = s.pack(product, 1)
        s.vectorize(s.get_loops(copy)[-1])
    s.reverse_compute_at("D", s.get_loops("C")[1])
    s.vectorize(s.get_loops("D")[-1])


def _tiles(s: Schedule, product: str) -> tuple[str, ...]:
    """Tiles of 16 rows, 8 columns and 8 steps of the sum; the new loops, outermost first."""
    row, column, k = s.get_loops(product)
    row_0, row_1 = s.split(row, [None, 16])
    column_0, column_1 = s.split(column, [None, 8])
    k_0, k_1 = s.split(k, [None, 8])
    order = (row_0, column_0, k_0, row_1, k_1, column_1)
    s.reorder(*order)
    return order


def _levels(
    s: Schedule, product: str, rows: list[int | None], columns: list[int | None], sums: list[int | None]
) -> tuple[str, ...]:
    """Rows and columns in four levels, sums in two, from the outside: rows, columns twice; sums, rows, columns twice."""
    row, column, k = s.get_loops(product)
    r, c, k = s.split(row, rows), s.split(column, columns), s.split(k, sums)
    order = (r[0], c[0], r[1], c[1], k[0], r[2], c[2], k[1], r[3], c[3])
    s.reorder(*order)
    return order
