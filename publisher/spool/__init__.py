"""Spooling contexts: what the store holds, written out as files or into another database, as it changes. A leaf."""
