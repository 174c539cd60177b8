"""What primitives ask before they rewrite: where data flows, which iterations depend on which, what a reduction computes."""
