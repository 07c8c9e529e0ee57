"""Observe a running publisher: logs, metrics, notices by mail, the service manager."""
