"""HTCondor: job history as lines or XML."""
