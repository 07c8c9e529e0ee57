"""Slurm: sacct, saved tables and JSON, and the job completion log."""
