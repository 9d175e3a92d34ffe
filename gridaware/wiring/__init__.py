"""Puts it together: one file per process, and the readers of what an operator edits."""
