"""Durations, memory, hosts and exit statuses of TORQUE and PBS Pro."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.sources.pbs import values


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("00:00:00", 0), ("10:16:36", 36996), ("100:00:01", 360001), ("19:23:4", 69784), ("26:13:20", 94400),
        ("0", 0), ("30", 30), ("02:03", 123), (None, None), ("", None), ("-1:00:00", None), ("1:2:3:4", None),
        ("aa:bb:cc", None), ("00:\u0660\u0660:00", None), ("1.5", 1.5),
    ],
)  # fmt: skip
def test_durations(text: str | None, expected_s: float | None) -> None:
    assert values.duration_ms(text) == (None if expected_s is None else round(expected_s * 1000))


@given(st.integers(0, 999_999_999), st.integers(0, 59), st.integers(0, 59))
def test_any_duration(hours: int, minutes: int, seconds: int) -> None:
    assert values.duration_ms(f"{hours:02}:{minutes:02}:{seconds:02}") == (hours * 3600 + minutes * 60 + seconds) * 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3348kb", 3348), ("0b", 0), ("1b", 1), ("4gb", 4 << 20), ("1025b", 2), ("12.27M", 12565), ("295.56M", 302654),
        ("10kw", 80), ("2mb", 2048), ("2MB", 2048), ("1tb", 1 << 30), ("1024", 1), (None, None), ("", None),
        ("kb", None), ("-1kb", None), ("1xb", None), ("999999999999999pb", None),
    ],
)  # fmt: skip
def test_memory(text: str | None, expected: int | None) -> None:
    assert values.memory_kib(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1/0", {"n1": 1}),
        ("n1/0+n1/1+n2/0", {"n1": 2, "n2": 1}),
        ("n1/0-3+n2/0,2", {"n1": 4, "n2": 2}),
        ("n1/0-1,4,6-7", {"n1": 5}),
        ("n1/0*8", {"n1": 8}),
        ("n1/0*0+n2/1", {"n1": 0, "n2": 1}),
        ("c1/0*13+c2/0*13", {"c1": 13, "c2": 13}),  # 26, not 2
        ("n1", {"n1": 1}),
        ("n1/7+n2/0+n1/6", {"n1": 2, "n2": 1}),  # a host that comes back is one host
        ("", None), ("/0", None), ("n1/3-1", None), ("n1/x", None), ("n1/0*x", None), ("+", None),
        ("n1/0-99999999", None),
    ],
)  # fmt: skip
def test_exec_hosts(text: str, expected: dict[str, int] | None) -> None:
    assert values.exec_hosts(text) == expected


def test_vnodes() -> None:
    text = "(g1[0]:ncpus=4:ngpus=1:mem=1gb+g1[1]:ncpus=4:ngpus=1)+(g2:mem=2gb)"
    assert (values.vnode_cpus(text), values.vnode_gpus(text)) == (8, 2)
    assert values.vnode_cpus("(n1:mem=1gb)") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1:ppn=28:gpus=1:default", 1), ("2:ppn=8:gpus=2+n7:gpus=3", 7), ("1:ppn=8", None), ("2:gpus=x", None)],
)
def test_gpus_of_nodes(text: str, expected: int | None) -> None:
    assert values.node_gpus(text) == expected


@pytest.mark.parametrize(
    ("exit_status", "deleted", "codes", "expected"),
    [
        (0, False, values.TORQUE_CODES, ("completed", 0, None, None)),
        (0, True, values.TORQUE_CODES, ("completed", 0, None, None)),
        (1, False, values.TORQUE_CODES, ("failed", 1, None, None)),
        (137, False, values.TORQUE_CODES, ("failed", 137, None, None)),
        (271, False, values.TORQUE_CODES, ("failed", None, 15, "271")),
        (271, True, values.TORQUE_CODES, ("cancelled", None, 15, "271")),
        (3, True, values.TORQUE_CODES, ("cancelled", 3, None, None)),
        (-3, False, values.TORQUE_CODES, ("aborted", None, None, "-3 JOB_EXEC_RETRY")),
        (-11, False, values.TORQUE_CODES, ("failed", None, None, "-11 JOB_EXEC_OVERLIMIT_WT")),
        (-11, False, values.PBS_CODES, ("aborted", None, None, "-11 JOB_EXEC_RERUN")),
        (-29, False, values.PBS_CODES, ("failed", None, None, "-29 JOB_EXEC_KILL_WALLTIME")),
        (-99, False, values.PBS_CODES, ("aborted", None, None, "-99")),
        (1000, False, values.PBS_CODES, ("failed", 1000, None, "1000")),
        (None, False, values.PBS_CODES, ("completed", None, None, "no Exit_status")),
        (None, True, values.PBS_CODES, ("cancelled", None, None, "no Exit_status")),
    ],
)
def test_endings(exit_status: int | None, deleted: bool, codes: dict[int, str], expected: tuple[object, ...]) -> None:
    assert values.ending(exit_status, deleted=deleted, codes=codes) == expected


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("n1/0", ("0",)),
        ("n1/0+n1/1+n2/0", ("0-1", "0")),
        ("n1/0-3+n2/0,2", ("0-3", "0,2")),
        ("n1/7+n1/6+n1/5", ("5-7",)),
        ("n1/0+n2/3+n1/1", ("0-1", "3")),
        ("n1/0+n1/0", ("0,0",)),
        ("n1+n2/3", ("", "3")),
        ("n1/0*8", ()),
        ("n1", ()),
        ("n1/0-99999999", ()),
        ("n1/99999", ()),
        (f"n1/{'9' * 5000}", ()),
        (f"n1/{'9' * 5000}+n2/1", ("", "1")),
    ],
)
def test_which_cores_of_each_host(text: str, reported: tuple[str, ...]) -> None:
    assert values.exec_cores(text) == reported
