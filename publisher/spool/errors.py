"""Trouble with a spooling context. It never stops what the store is for: what could not be written is kept to be."""

from __future__ import annotations

from publisher.errors import PublisherError


class SpoolError(PublisherError):
    """A context cannot be read or written."""

    retry_helps = True
