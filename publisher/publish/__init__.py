"""The only way out: what is due is batched, recorded, sent, and settled."""
