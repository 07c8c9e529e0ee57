"""Telling the service manager how we are: ready, at work, alive, reloading, stopping.

The protocol is a datagram to the socket that `NOTIFY_SOCKET` names; without it nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class ServiceManager:
    """The manager of the environment given, if there is one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "") if ours else ""
        self.alive_every_s = int(microseconds) / 2e6 if microseconds.isdigit() and int(microseconds) else None
        """How often it wants to hear that we are alive: twice in its time-out; None: never."""
        self._next_alive = 0.0

    def ready(self) -> None:
        """The configuration is read; work begins."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """The configuration is read anew; `ready` follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The batch in hand is finished, then we leave."""
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for people."""
        self._tell("STATUS=" + " ".join(text.split()))

    def alive(self) -> None:
        """Called at every step; told as often as the manager wants to hear it."""
        if self.alive_every_s is not None and time.monotonic() >= self._next_alive:
            self._next_alive = time.monotonic() + self.alive_every_s
            self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(text.encode(), self._address)
