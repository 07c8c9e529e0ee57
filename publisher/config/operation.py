"""`[metrics]`, `[notices]` and `[log]`: how the publisher is watched.

`[spool.NAME]`: what the store holds, written out as it changes.

`[serve]`: where the page is shown, and to whom.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from publisher.config.types import Count, FilePath, Seconds, Settings, StoreUrl, Switch, WrongKeysError

_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+", re.ASCII)
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})", re.ASCII)


def _mail_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("is not a mail address such as ops@example.org")
    return value


def _host_and_port(value: str) -> str:
    found = _HOST_AND_PORT.fullmatch(value)
    if found is None or int(found[2]) > 65535:
        raise ValueError("is not a HOST:PORT such as 127.0.0.1:9464")
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

    mail_to: tuple[MailAddress, ...] = Field(default=(), description="Who gets the mails; empty: nobody.")
    mail_from: MailAddress | None = Field(default=None, description="Sender. Default: usage-publisher@ this host.")
    smtp: HostAndPort = Field(default="localhost:25", description="HOST:PORT of the mail server.")
    starttls: Switch = Field(
        default=False, description="Encrypt the way to the mail server, and verify its certificate."
    )
    target_fails_for: Seconds = Field(
        default=6 * 3600.0, ge=0, description="A target without success for longer is worth a mail."
    )
    certificate_days: Count = Field(default=14, ge=0, description="A certificate with fewer days left is worth a mail.")
    unconfirmed_days: Count = Field(
        default=7,
        ge=1,
        description="Accepted jobs that the service's evidence has not confirmed for so many days are worth a mail.",
    )


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
            raise WrongKeysError((("file",), "is missing: format and level need it"))
        return self


SpoolKind = Literal["jobs", "deliveries", "messages"]
SpoolFormat = Literal["classic", "delimited", "json-lines", "xml", "database"]


class SpoolContext(Settings):
    """`[spool.NAME]`: a spooling context."""

    format: SpoolFormat = Field(
        description="`classic` (names and values) and `xml`: one file an object; `delimited` and `json-lines`: one "
        "file a kind; `database`: tables of another database."
    )
    path: FilePath | None = Field(default=None, description="Folder of the files.")
    url: StoreUrl = Field(default="", description="Of the other database, as `store.url`.")
    kinds: tuple[SpoolKind, ...] = Field(
        default=("jobs", "deliveries", "messages"), min_length=1, description="Which kinds of object are written."
    )
    attributes: dict[SpoolKind, tuple[str, ...]] = Field(
        default_factory=dict, description="By kind, the attributes that are written. Default: all."
    )
    delimiter: str = Field(
        default=":",
        min_length=1,
        max_length=1,
        pattern=r"^[^\w\s\\,=.+-]$|^\t$",
        description="Between fields of `delimited`.",
    )

    @model_validator(mode="after")
    def _has_a_place(self) -> SpoolContext:
        if self.format == "database":
            if not self.url or self.path is not None:
                raise ValueError("a context in a database needs a url (sqlite:///path or postgresql://...) and no path")
        elif self.path is None or self.url:
            raise ValueError("a context in files needs a path and no url")
        for kind, names in self.attributes.items():
            if kind not in self.kinds:
                raise WrongKeysError((("attributes", kind), f"{kind} is not among the kinds of this context"))
            if not names:
                raise WrongKeysError((("attributes", kind), "must name an attribute"))
        return self

    @property
    def folder(self) -> Path:
        """Of a context in files."""
        assert self.path is not None  # see above
        return self.path


def _addresses(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("is not an IP address or network such as 127.0.0.1 or 192.0.2.0/24") from None
    return value


Addresses = Annotated[str, AfterValidator(_addresses)]
"""An IP address, or a network of them."""


class Serve(Settings):
    """`[serve]`: the page with reports and the publishing status."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Count = Field(default=8642, ge=0, le=65535, description="Port to listen on; 0: any that is free.")
    names: tuple[str, ...] = Field(
        default=(), description="Further names that the page is called by, such as that of a proxy before it."
    )
    proxies: tuple[Addresses, ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.",
    )
    tokens: FilePath | None = Field(
        default=None, description="File with groups and users, mode 0600. Without, everybody on this host sees all."
    )
    certificate: FilePath | None = Field(default=None, description="PEM file with the server's certificate and chain.")
    key: FilePath | None = Field(default=None, description="PEM file with its key, mode 0600 or 0400, no pass phrase.")
    session: Seconds = Field(default=43_200.0, gt=0, description="How long a log-in lasts.")

    @model_validator(mode="after")
    def _together(self) -> Serve:
        if (self.certificate is None) != (self.key is None):
            missing = "certificate" if self.certificate is None else "key"
            raise WrongKeysError(((missing,), "is missing: certificate and key go together"))
        return self
