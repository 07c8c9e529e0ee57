"""Utilization as DQS measures it, and its message."""
