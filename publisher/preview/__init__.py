"""Preview of what would be sent: render, diff, explain. Read-only."""
