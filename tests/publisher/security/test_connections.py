"""A listening socket with limits, on real sockets."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from publisher.security.connections import Connection, Listener


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def listener(stack: ExitStack, **limits: object) -> Listener:
    bound = socket.create_server(("127.0.0.1", 0), backlog=64)
    given = {"most": 6, "most_of_address": 3, "wait_s": 3600.0} | limits
    made = stack.enter_context(Listener(bound, **given))  # type: ignore[arg-type]
    made.settimeout(30)
    return made


def connected(stack: ExitStack, to: Listener, host: str = "127.0.0.1") -> socket.socket:
    client = socket.create_connection(to.getsockname(), 30, source_address=(host, 0))
    return stack.enter_context(client)


def accepted(stack: ExitStack, by: Listener) -> Connection:
    return stack.enter_context(by.accept()[0])


def is_ended(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


def test_of_one_address_the_one_that_has_waited_longest_makes_room(stack: ExitStack) -> None:
    listening = listener(stack)
    other = connected(stack, listening, "127.0.0.2")
    accepted(stack, listening)
    clients = []
    for _ in range(5):
        clients.append(connected(stack, listening))
        accepted(stack, listening)
    assert [is_ended(client) for client in clients] == [True, True, False, False, False]
    assert not is_ended(other)


def test_in_all_the_one_that_has_waited_longest_makes_room(stack: ExitStack) -> None:
    listening = listener(stack)
    clients = []
    for last in range(1, 9):
        clients.append(connected(stack, listening, f"127.0.0.{last}"))
        accepted(stack, listening)
    assert [is_ended(client) for client in clients] == [True, True, *[False] * 6]


def test_one_that_is_answered_stays_and_the_new_one_is_refused(stack: ExitStack) -> None:
    listening = listener(stack, most=3)
    with ExitStack() as answered:
        first = connected(stack, listening)
        place = accepted(stack, listening).place
        for _ in range(2):
            connected(stack, listening)
            answered.enter_context(listening.answering(accepted(stack, listening).place))
        with listening.answering(place):
            refused = connected(stack, listening)
            listening.settimeout(0.01)
            with pytest.raises(TimeoutError):  # there are no other connections
                listening.accept()
            assert is_ended(refused)
            assert not is_ended(first)
        listening.settimeout(30)
        later = connected(stack, listening)
        accepted(stack, listening)
        assert is_ended(first)
        assert not is_ended(later)


def test_a_proxy_speaks_for_many(stack: ExitStack) -> None:
    listening = listener(stack, is_proxy=lambda host: host == "127.0.0.1")
    clients = []
    for _ in range(6):
        clients.append(connected(stack, listening))
        accepted(stack, listening)
    assert not any(is_ended(client) for client in clients)


def test_a_client_that_waits_too_long_is_closed_and_one_that_is_answered_is_not(stack: ExitStack) -> None:
    listening = listener(stack, wait_s=0.0)
    waits, asks = connected(stack, listening), connected(stack, listening)
    accepted(stack, listening)
    with listening.answering(accepted(stack, listening).place):
        listening.drop_overdue()
        assert is_ended(waits)
        assert not is_ended(asks)
    listening.drop_overdue()
    assert is_ended(asks)


def test_at_the_end_no_client_waits(stack: ExitStack) -> None:
    listening = listener(stack)
    client = connected(stack, listening)
    accepted(stack, listening)
    listening.close()
    assert is_ended(client)


def test_networks_of_ipv6_count_as_one_address(stack: ExitStack) -> None:
    from publisher.security.connections import _client

    assert _client("2001:db8::1") == _client("2001:db8::ffff:2") != _client("2001:db8:0:1::1")
    assert _client("::ffff:192.0.2.1") == _client("192.0.2.1") != _client("192.0.2.2")
    assert _client("fe80::1%eth0") == _client("fe80::2")


def test_there_are_fewer_where_few_files_can_be_open(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:  # the process of the tests may have more files open than that
        patched.setattr(resource, "getrlimit", lambda _which: (110, 4096))
        listening = listener(stack, most=200, most_of_address=200)
    clients = []
    for _ in range(16):
        clients.append(connected(stack, listening))
        accepted(stack, listening)
    assert sum(is_ended(client) for client in clients) == 2
