"""Spooling contexts: the contents of the store, written to files or to another database as they change."""
