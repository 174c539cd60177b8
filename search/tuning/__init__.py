"""Tuning: candidates of a policy are measured and recorded until the budget is used up.

`autotune` tunes one function, `task_scheduler.tune_tasks` several; a `session` is the tuning of one of them.
"""
