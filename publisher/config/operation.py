"""Tables about operation: `[credentials]`, `[metrics]`, `[notices]`, `[log]`, `[spool.NAME]`, and `[serve]`."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from publisher.config.types import (
    Count,
    FilePath,
    Seconds,
    ServiceUrl,
    Settings,
    StoreUrl,
    Switch,
    WrongKeysError,
    matching,
)

_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+", re.ASCII)
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})", re.ASCII)


def _mail_address(value: str) -> str:
    if not _ADDRESS.fullmatch(value):
        raise ValueError("must be a mail address such as ops@example.org")
    return value


def _host_and_port(value: str) -> str:
    match = _HOST_AND_PORT.fullmatch(value)
    if match is None or int(match[2]) > 65535:
        raise ValueError("must be HOST:PORT such as 127.0.0.1:9464")
    return value


def address_of(host_and_port: str) -> tuple[str, int]:
    """Host (an IPv6 address without its brackets) and port of such a setting."""
    host, _, port = host_and_port.rpartition(":")
    return host.strip("[]"), int(port)


MailAddress = Annotated[str, AfterValidator(_mail_address)]
HostAndPort = Annotated[str, AfterValidator(_host_and_port)]


def _require_pair(certificate: Path | None, key: Path | None) -> None:
    """Raises `WrongKeysError` if one of them is missing."""
    if (certificate is None) != (key is None):
        missing = "certificate" if certificate is None else "key"
        raise WrongKeysError(((missing,), "is missing: certificate and key go together"))


_RESERVED_HEADERS: Final = frozenset(
    {
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie",
        "expect", "host", "idempotency-key", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    }
)  # fmt: skip
_HEADER_NAME: Final = matching(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", "must be the name of an HTTP header")
_SCHEME: Final = matching(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{0,50}", "must be one word, such as Bearer")
_DELIMITER: Final = matching(
    r"[^\w\s\\,=.+-]|\t", "must be one character: a tab or a sign, but no letter, digit, white space, \\ , = . + -"
)


def _header_name(value: str) -> str:
    if value.lower() in _RESERVED_HEADERS:
        raise ValueError(f"{value} has another meaning in HTTP; must be a header for a token, such as X-API-Key")
    return value


class Credentials(Settings):
    """`[credentials]`, or a target's own: client certificate, trusted authorities, and a token in a header."""

    certificate: FilePath | None = Field(default=None, description="PEM file with the certificate (and its chain).")
    key: FilePath | None = Field(default=None, description="PEM file with the key, mode 0600 or 0400, no pass phrase.")
    ca_directory: FilePath | None = Field(default=None, description="Hashed directory of CA certificates.")
    ca_file: FilePath | None = Field(default=None, description="PEM file of CA certificates.")
    token_file: FilePath | None = Field(
        default=None, description="File with a token or API key that is sent in a header, mode 0600 or 0400."
    )
    token_url: ServiceUrl | None = Field(
        default=None, description="Token endpoint of an OpenID provider; gives a token for client id and secret."
    )
    client_id: str | None = Field(default=None, min_length=1, description="Client id at the provider.")
    client_secret_file: FilePath | None = Field(
        default=None, description="File with the client's secret, mode 0600 or 0400."
    )
    scope: str | None = Field(default=None, min_length=1, description="Scope of the token, as the service asks for.")
    client_auth: Literal["basic", "post"] = Field(default="basic", description="Secret by HTTP Basic, or in the body.")
    token_header: Annotated[str, _HEADER_NAME, AfterValidator(_header_name)] = Field(
        default="Authorization", description="Header in which the token is sent."
    )
    token_scheme: Annotated[str, _SCHEME] | None = Field(
        default=None,
        description="Word before the token; empty: none. Default: `Bearer` in `Authorization`, else none.",
    )

    @model_validator(mode="after")
    def _together(self) -> Credentials:
        _require_pair(self.certificate, self.key)
        of_client = {name: getattr(self, name) for name in ("token_url", "client_id", "client_secret_file")}
        given = [name for name in ("token_file", *of_client) if getattr(self, name) is not None]
        if self.token_file is not None and len(given) > 1:
            raise WrongKeysError((("token_file",), f"and {given[1]} are both set. Set one of them"))
        if given and self.token_file is None:
            missing = [name for name, value in of_client.items() if value is None]
            if missing:
                text = f"is missing: {', '.join(of_client)} go together"
                raise WrongKeysError(*(((name,), text) for name in missing))
        if self.scope is not None and self.token_url is None:
            raise WrongKeysError((("scope",), "is for token_url. Omit it"))
        if "client_auth" in self.model_fields_set and self.token_url is None:
            raise WrongKeysError((("client_auth",), "is for token_url. Omit it"))
        needless = {"token_header", "token_scheme"} & self.model_fields_set
        if needless and not given:
            raise WrongKeysError(*(((name,), "needs token_file or token_url") for name in sorted(needless)))
        return self

    @property
    def has_token(self) -> bool:
        """Whether a token is sent in a header."""
        return self.token_file is not None or self.token_url is not None

    @property
    def scheme(self) -> str:
        """The word before the token; empty: none."""
        if self.token_scheme is not None:
            return self.token_scheme
        return "Bearer" if self.token_header.lower() == "authorization" else ""

    def of_target(self, own: Credentials | None) -> Credentials:
        """The credentials of a target: its own pair (certificate and key), authorities, and token, if it has them,
        otherwise these common ones."""
        if own is None:
            return self
        pair = own if own.certificate is not None else self
        trust = own if own.ca_directory or own.ca_file else self
        token = own if own.has_token else self
        return token.model_copy(
            update={
                "certificate": pair.certificate,
                "key": pair.key,
                "ca_directory": trust.ca_directory,
                "ca_file": trust.ca_file,
            }
        )


class Metrics(Settings):
    """`[metrics]`: metrics for Prometheus."""

    textfile: FilePath | None = Field(
        default=None,
        description="File for the node exporter's textfile collector (`*.prom`), written after every `run`.",
    )
    listen: HostAndPort | None = Field(
        default=None, description="HOST:PORT at which `run --every` serves `/metrics`; usually on loopback."
    )
    names: tuple[str, ...] = Field(default=(), description="Further names of this host in requests.")


class Notices(Settings):
    """`[notices]`: a mail when a problem begins, and one when it ends."""

    mail_to: tuple[MailAddress, ...] = Field(default=(), description="Recipients; empty: no mails are sent.")
    mail_from: MailAddress | None = Field(default=None, description="Sender. Default: usage-publisher@HOST.")
    smtp: HostAndPort = Field(default="localhost:25", description="HOST:PORT of the mail server.")
    starttls: Switch = Field(default=False, description="Use STARTTLS, and verify the certificate of the mail server.")
    target_fails_for: Seconds = Field(
        default=6 * 3600.0, ge=0, description="Send a mail when a target has had no success for longer."
    )
    held_for: Seconds = Field(
        default=86_400.0,
        ge=0,
        description="Send a mail when records that a later run usually releases are held for longer.",
    )
    certificate_days: Count = Field(
        default=14, ge=0, description="Send a mail when a certificate expires in fewer days."
    )
    unconfirmed_days: Count = Field(
        default=7,
        ge=1,
        description="Send a mail when accepted jobs are unconfirmed for this number of days.",
    )


class Log(Settings):
    """`[log]`: the log file."""

    file: FilePath | None = Field(default=None, description="The file; lines are appended. Default: no log.")
    format: Literal["text", "json"] = Field(default="text", description="Text for people, or one JSON object per line.")
    level: Literal["debug", "info", "warning"] = Field(
        default="info", description="`debug` also logs every record of a batch."
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
        description="`classic` (names and values) and `xml`: one file per object; `delimited` and `json-lines`: one "
        "file per kind; `database`: tables of another database."
    )
    path: FilePath | None = Field(default=None, description="Folder of the files.")
    url: StoreUrl = Field(default="", description="URL of the other database, written like `store.url`.")
    kinds: tuple[SpoolKind, ...] = Field(
        default=("jobs", "deliveries", "messages"), min_length=1, description="The kinds of object to write."
    )
    attributes: dict[SpoolKind, tuple[str, ...]] = Field(
        default_factory=dict, description="By kind, the attributes to write. Default: all."
    )
    delimiter: Annotated[str, _DELIMITER] = Field(default=":", description="Delimiter of fields in `delimited`.")

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
        """The folder of a context in files."""
        assert self.path is not None  # see above
        return self.path


def _addresses(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        raise ValueError("must be an IP address or network such as 127.0.0.1 or 192.0.2.0/24") from None
    return value


Addresses = Annotated[str, AfterValidator(_addresses)]
"""An IP address, or a network of them."""


class Serve(Settings):
    """`[serve]`: the page with reports and the publishing status."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: Count = Field(default=8642, ge=0, le=65535, description="Port to listen on; 0: any free port.")
    names: tuple[str, ...] = Field(
        default=(), description="Further host names of the page, such as that of a reverse proxy."
    )
    proxies: tuple[Addresses, ...] = Field(
        default=(),
        description="Proxies (addresses, networks) whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.",
    )
    tokens: FilePath | None = Field(
        default=None,
        description="File with groups and users, mode 0600. Without it, every user of this host sees everything.",
    )
    certificate: FilePath | None = Field(default=None, description="PEM file with the server's certificate and chain.")
    key: FilePath | None = Field(default=None, description="PEM file with its key, mode 0600 or 0400, no pass phrase.")
    session: Seconds = Field(default=43_200.0, gt=0, description="How long a log-in lasts.")

    @model_validator(mode="after")
    def _together(self) -> Serve:
        _require_pair(self.certificate, self.key)
        return self
