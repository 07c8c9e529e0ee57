"""Status, jobs, and checks. Read-only."""
