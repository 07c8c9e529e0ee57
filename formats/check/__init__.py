"""Check messages by the rules of their services."""
