"""Tuning: what asks a policy for candidates, has them measured, and keeps what is found, until the budget is used up.

`autotune` tunes one function, `task_scheduler.tune_tasks` several; a `session` is the tuning of one of them.
"""
