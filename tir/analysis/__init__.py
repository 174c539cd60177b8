"""Facts derived from the IR: the regions that statements read and write."""
