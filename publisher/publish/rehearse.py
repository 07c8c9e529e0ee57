"""Rehearse: what publish does for a shadow target. All that waits is rendered and signed; nothing is sent.

The ledger does not change: all deliveries wait for the day on which the shadow becomes the publisher.
"""

from __future__ import annotations

import msgspec

from publisher.config.schema import Config
from publisher.preview.render import Rendering, signing
from publisher.publish.context import Tools
from publisher.sources.base import Window
from publisher.store.database import Store


class Rehearsed(msgspec.Struct, frozen=True):
    """What would have been sent. `messages` and `bytes`: with sync messages, signed if the target signs; `held`: runs
    that cannot be sent."""

    records: int
    messages: int
    bytes: int
    held: int


def rehearse(store: Store, config: Config, name: str, tools: Tools) -> Rehearsed:
    """Make all messages that wait for a target. Raises `CredentialError`, `SigningError` and `UsageError`."""
    settings = config.targets[name]
    rendering = Rendering(store, config, settings.records, name, Window(), tools.clock(), with_sync=True)
    finish = signing(config, name) if settings.signs else bytes
    messages = size = held = 0
    for message in rendering.messages():
        if tools.stopping():
            break
        messages += 1
        size += len(finish(message.payload))
        held += len(rendering.held)
        rendering.held.clear()  # `shadow` lists them; there may be millions
        rendering.notes.clear()
    return Rehearsed(rendering.records, messages, size, held + len(rendering.held))
