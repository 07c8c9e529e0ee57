"""AUDITOR: the records of its REST interface, or of its table."""
