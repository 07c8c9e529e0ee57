"""A service's evidence beside the ledger."""
