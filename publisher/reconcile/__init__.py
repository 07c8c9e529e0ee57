"""Compare the ledger with what services have."""
