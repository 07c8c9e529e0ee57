"""Reports of what the site was used for. A leaf: nothing of collecting and publishing knows it."""
