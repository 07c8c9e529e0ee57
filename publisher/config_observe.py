"""`[metrics]`, `[notices]` and `[log]`: how the publisher is watched."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from publisher.config_types import Count, FilePath, Seconds, Settings, Switch

_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+", re.ASCII)
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})", re.ASCII)


def _mail_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("is no mail address such as ops@example.org")
    return value


def _host_and_port(value: str) -> str:
    found = _HOST_AND_PORT.fullmatch(value)
    if found is None or int(found[2]) > 65535:
        raise ValueError("is no HOST:PORT such as 127.0.0.1:9464")
    return value


def address_of(host_and_port: str) -> tuple[str, int]:
    """Host (an IPv6 address without its brackets) and port of such a setting."""
    host, _, port = host_and_port.rpartition(":")
    return host.strip("[]"), int(port)


MailAddress = Annotated[str, AfterValidator(_mail_address)]
HostAndPort = Annotated[str, AfterValidator(_host_and_port)]


class Metrics(Settings):
    """`[metrics]`: numbers for Prometheus."""

    textfile: FilePath | None = Field(
        default=None, description="Written after every `run`, for the node exporter's textfile collector: `*.prom`."
    )
    listen: HostAndPort | None = Field(
        default=None, description="HOST:PORT that `run --every` answers at `/metrics`; as a rule on loopback."
    )


class Notices(Settings):
    """`[notices]`: a mail when something goes wrong, and one when it is over."""

    mail_to: tuple[MailAddress, ...] = Field(default=(), description="Who is told; empty: nobody.")
    mail_from: MailAddress | None = Field(default=None, description="Sender. Default: usage-publisher@ this host.")
    smtp: HostAndPort = Field(default="localhost:25", description="HOST:PORT of the mail server.")
    starttls: Switch = Field(
        default=False, description="Encrypt the way to the mail server, and verify its certificate."
    )
    target_fails_for: Seconds = Field(
        default=6 * 3600.0, ge=0, description="A target without success for longer is worth a mail."
    )
    certificate_days: Count = Field(default=14, ge=0, description="A certificate with fewer days left is worth a mail.")


class Log(Settings):
    """`[log]`: what happens, line by line."""

    file: FilePath | None = Field(default=None, description="Appended to. Default: none is written.")
    format: Literal["text", "json"] = Field(default="text", description="For people, or one JSON object a line.")
    level: Literal["debug", "info", "warning"] = Field(
        default="info", description="`debug` also names every record of a batch."
    )

    @model_validator(mode="after")
    def _something_to_write_to(self) -> Log:
        if self.file is None and self.model_fields_set:
            raise ValueError("format and level are of no use without `file`")
        return self
