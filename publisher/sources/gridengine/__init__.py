"""Grid Engine: the accounting file, with colons or as JSON lines."""
