"""The store: jobs, deliveries, batches and receipts, in one database."""
