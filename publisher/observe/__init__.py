"""How a running publisher is watched: logs, metrics, notices by mail, the service manager."""
