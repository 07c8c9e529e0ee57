"""Certificates and keys, TLS and HTTP, S/MIME."""
