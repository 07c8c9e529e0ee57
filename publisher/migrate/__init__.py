"""Moving over from another publisher: its configuration, its state, and what it sent, beside ours.

Only the commands import it. Nothing here changes what it reads, except SSM's outgoing queue, which is taken over
message by message when asked.
"""
