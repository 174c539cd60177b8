"""Alignment of blocks of memory: at cache lines, and of large ones at large pages."""

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
MIN_HUGE_BYTES = 4 << 20  # bytes: larger blocks use large pages, where the system has them
HUGE_PAGE_BYTES = 2 << 20


def size_and_alignment(size: int, alignment: int) -> tuple[int, int]:
    """The size and the alignment in bytes of a block that holds `size` bytes: large ones are whole pages."""
    alignment = HUGE_PAGE_BYTES if size >= MIN_HUGE_BYTES else alignment
    return (size + alignment - 1) // alignment * alignment, alignment


def aligned(offset: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT
