"""Open messages: files, compression, S/MIME, AMS."""
