"""Source `auditor`."""
