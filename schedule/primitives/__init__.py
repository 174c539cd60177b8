"""The primitives: one module a primitive, in folders by what they rewrite. `Schedule` imports, and so registers, all of them."""
