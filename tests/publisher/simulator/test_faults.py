"""Which requests meet a fault."""

from __future__ import annotations

from publisher.simulator.faults import Fault, Faults, Service


def strikes(faults: Faults, times: int, *, service: Service = "sgas", content: bytes = b"") -> list[bool]:
    return [faults.choose(service, lambda: content) is not None for _ in range(times)]


def test_by_count() -> None:
    assert strikes(Faults([Fault("status", skip=2, count=3)]), 7) == [False, False, True, True, True, False, False]


def test_by_chance_with_a_seed() -> None:
    once = strikes(Faults([Fault("status", probability=0.3)], seed=5), 200)
    assert once == strikes(Faults([Fault("status", probability=0.3)], seed=5), 200)
    assert once != strikes(Faults([Fault("status", probability=0.3)], seed=6), 200)
    assert 30 < sum(once) < 90
    assert not any(strikes(Faults([Fault("status", probability=0.0)]), 50))


def test_by_service_and_content() -> None:
    faults = Faults(
        [Fault("status", service="publish"), Fault("close", match="ur-[12]$"), Fault("hang", texts=("a", "b"))]
    )
    assert strikes(faults, 1) == [False]
    assert strikes(faults, 1, service="publish") == [True]
    assert strikes(faults, 1, content=b"ur-2") == [True]
    assert strikes(faults, 1, content=b"ur-3b") == [True]
    assert [count for _, count in faults.applied()] == [1, 1, 1]


def test_one_after_the_other() -> None:
    faults = Faults([Fault("status", count=1), Fault("close", count=1)])
    chosen = [faults.choose("sgas", lambda: b"") for _ in range(3)]
    assert [fault.kind if fault else None for fault in chosen] == ["status", "close", None]
