"""Moving over from another publisher: its configuration, its state, and what it sent, beside ours.

A leaf: only the commands know it. Nothing here changes what it reads, but for the outgoing queue of SSM, which is taken
over message by message when that is asked for.
"""
