"""The primitives: one module each, in folders by the object of the rewrite. `Schedule` imports, and so registers, all of them."""
