"""Move from another publisher: convert its configuration and state, and compare what it sent with what would be sent.

Only the commands import this package. It changes nothing that it reads, except SSM's outgoing queue, whose messages
`import ssm-queue` sends and removes.
"""
