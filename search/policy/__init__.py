"""Policies: they propose candidates, and are updated with the measurements (`docs/policies.md`).

`protocol` defines a policy. `default_schedule` measures nothing, `random_search` is the baseline, `evolution` is Ansor's search;
`named` has their names.
"""
