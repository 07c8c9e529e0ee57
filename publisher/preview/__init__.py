"""What would be sent: render, diff, explain. Read-only."""
