"""Analyses of a program: contexts of accesses, regions, dependences, proofs of writes before reads."""
