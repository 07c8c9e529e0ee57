"""Opening messages: files, compression, S/MIME, AMS."""
