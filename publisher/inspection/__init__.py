"""Messages as they lie in files, queues and replies: unwrapped, verified, and checked by their services' rules."""
