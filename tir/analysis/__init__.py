"""Facts of a program as it stands: contexts of accesses, regions, dependences, what is written before it is read."""
