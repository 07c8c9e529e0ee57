"""Reading HTTP/1.1 requests from a socket: strict and bounded, since anything may connect.

What is ambiguous is refused, never guessed: both Content-Length and chunks, folded headers, signs in lengths.
"""

from __future__ import annotations

import re
import socket

import msgspec

_MOST_HEAD_BYTES = 32 * 1024
_MOST_LINE_BYTES = 1024
_READ_BYTES = 64 * 1024
_REQUEST_LINE = re.compile(r"([A-Z]{1,20}) (/[!-~]{0,8000}) HTTP/1\.([01])")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DECIMAL = re.compile(r"[0-9]{1,12}")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}")


class BadRequestError(Exception):
    """Not HTTP as it should be. The text says what is wrong."""


class TooLargeError(Exception):
    """The body is larger than the limit of its path."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Head(msgspec.Struct, frozen=True):
    """Request line and headers; names in small letters, repeated ones joined by a comma."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    keep_alive: bool


class HttpReader:
    """Reads the requests of one connection, one after the other."""

    def __init__(self, connection: socket.socket) -> None:
        """`connection` blocks, with a time-out; its `OSError` and `TimeoutError` go to the caller."""
        self._connection = connection
        self._buffer = bytearray()

    def head(self) -> Head | None:
        """The next request's head; None where the client is gone. Raises `BadRequestError`."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MOST_HEAD_BYTES:
                raise BadRequestError("the headers are too large")
            if not self._fill():
                return None
        text = self._take(end + 4)[:-4].decode("latin-1")
        first, *lines = text.split("\r\n")
        match = _REQUEST_LINE.fullmatch(first)
        if match is None:
            raise BadRequestError("the request line is none")
        method, target, minor = match.groups()
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not _NAME.fullmatch(name):
                raise BadRequestError("a header is none")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        path, _, query = target.partition("?")
        connection = headers.get("connection", "").lower()
        keep_alive = connection == "keep-alive" if minor == "0" else connection != "close"
        return Head(method, path, query, headers, keep_alive)

    def body(self, head: Head, limit_bytes: int) -> bytes:
        """What the request carries. Raises `BadRequestError` and, before it is read, `TooLargeError`."""
        encoding, length = head.headers.get("transfer-encoding"), head.headers.get("content-length")
        if encoding is not None:
            if length is not None or encoding.lower() != "chunked":
                raise BadRequestError("its length is ambiguous")
            self._continue(head)
            return self._chunks(head, limit_bytes)
        if length is None:
            return b""
        if not _DECIMAL.fullmatch(length):
            raise BadRequestError("Content-Length is no number")
        if int(length) > limit_bytes:
            raise TooLargeError(head.path)
        self._continue(head)
        return self._exactly(int(length))

    def discard(self, limit_bytes: int) -> None:
        """Read on until the client ends, so that it can read the answer to what it is still sending."""
        self._buffer.clear()
        while limit_bytes > 0 and (got := self._connection.recv(_READ_BYTES)):
            limit_bytes -= len(got)

    def _continue(self, head: Head) -> None:
        if head.headers.get("expect", "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _chunks(self, head: Head, limit_bytes: int) -> bytes:
        body = bytearray()
        while True:
            size_text = self._line().partition(b";")[0].strip()
            if not _HEX.fullmatch(size_text):
                raise BadRequestError("a chunk's size is no number")
            size = int(size_text, 16)
            if size == 0:
                break
            if len(body) + size > limit_bytes:
                raise TooLargeError(head.path)
            body += self._exactly(size)
            if self._line():
                raise BadRequestError("a chunk is longer than it says")
        while self._line():
            pass  # trailers mean nothing here
        return bytes(body)

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _MOST_LINE_BYTES:
                raise BadRequestError("a line is too long")
            self._fill_or_fail()
        if end > _MOST_LINE_BYTES:
            raise BadRequestError("a line is too long")
        return self._take(end + 2)[:-2]

    def _exactly(self, size: int) -> bytes:
        have = self._take(min(size, len(self._buffer)))
        if len(have) == size:
            return have
        body = bytearray(size)
        body[: len(have)] = have
        view, at = memoryview(body), len(have)
        while at < size:
            got = self._connection.recv_into(view[at:])
            if not got:
                raise ConnectionResetError("the client left within a body")
            at += got
        return bytes(body)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _fill(self) -> bool:
        got = self._connection.recv(_READ_BYTES)
        self._buffer += got
        return bool(got)

    def _fill_or_fail(self) -> None:
        if not self._fill():
            raise ConnectionResetError("the client left within a request")
