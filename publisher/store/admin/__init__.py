"""Maintenance of a whole store: backup, copy, integrity check, purge, erasure."""
