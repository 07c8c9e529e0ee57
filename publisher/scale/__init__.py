"""Archives of runs for reports over years. A leaf: nothing of collecting and publishing knows it."""
