"""Simple: m·n·2 loads for each k. Tiled: m + n. So the ratio is 2mn / (m + n), the harmonic mean of m and n.

Square tiles are best for their area, and larger ones are better still, as far as a block has threads and shared memory.
"""


def ratio(m, n):
    return 2 * m * n / (m + n)


for m, n in ((8, 16), (16, 16), (4, 32)):
    print(f"{m} x {n}: {ratio(m, n):.2f} times fewer loads")
assert ratio(8, 16) == 32 / 3 and ratio(16, 16) == 16 and ratio(4, 32) < ratio(8, 16) < ratio(16, 16)
