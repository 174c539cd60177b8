"""The primitives: one module a primitive, in folders by what they rewrite. Importing this package registers them all."""

from . import blocks, buffers, guards, loops, placement, reductions, sampling

FAMILIES = (loops, placement, buffers, reductions, guards, blocks, sampling)  # in the order of `docs/primitives.md`
