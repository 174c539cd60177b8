"""Answers about a program as it stands: contexts of accesses, regions, dependences, conflicts, proofs of writes before reads.

An answer is a value, and "unknown" is one: nothing here knows the step or the check that asks. `tir.arith` answers about
expressions alone, `tir.verify` turns answers into findings, and `schedule.legality` into refusals.
"""
