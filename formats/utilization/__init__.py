"""Utilization as DQS measures it, and its messages."""
