"""ARC: the computing element's accounting database."""
