"""Spooling contexts: write the contents of the store to files or to another database, as they change."""
