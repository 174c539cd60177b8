"""Facts derived from the IR: accesses and their contexts, regions, dependences between iterations."""
