"""Judging messages by their services' rules."""
