"""Policies: what proposes candidates and is told what became of them.

`protocol` has what a policy is. `construction` measures nothing, `random_search` learns nothing, `evolution` is Ansor's;
`strategies` has their names.
"""
