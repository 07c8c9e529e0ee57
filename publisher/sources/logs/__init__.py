"""Logs: found when rotated, compressed or not, read line by line or as whole documents."""
