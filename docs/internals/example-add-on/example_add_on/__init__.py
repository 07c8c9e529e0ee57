"""A source, a format and a target for the usage publisher."""
