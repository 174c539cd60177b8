"""Facts derived from the IR: accesses and what stands around them, regions, dependences between iterations."""
