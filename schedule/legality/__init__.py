"""What steps require of the statements that they name, move, split or mark: proofs, and refusals with the reason.

A module answers about two places or two orders of a program, and refuses (ScheduleError, Unproved) what is unknown. A question
about the program as it stands is one of `tir.analysis`; what every program must satisfy is checked by `tir.verify`.
"""
