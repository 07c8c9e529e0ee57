"""Sending: what is due is cut into batches, recorded as in flight, sent, and settled."""
