"""Rewriting: edits and clones of statements, substitution of loops, placement of nests, cache stages, layouts, index maps."""
