"""Policies: they propose candidates, and are updated with the measurements (`docs/policies.md`).

`protocol` is the interface. `default_schedule` measures nothing, `random_search` is the baseline, `evolution` is Ansor's search;
`named` is the table of policies by name.
"""
