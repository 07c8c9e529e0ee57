"""Values in accounting records of TORQUE and PBS Pro: durations, memory, hosts, exit status.

Pure. A value that cannot be read is None, never zero: the caller keeps the original text. (The facts on sources, 4 and
5; exit codes as in the manuals of both systems.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from formats import cores
from formats.job import Status

MAX_SLOTS: Final = 10_000_000
"""More slots than any job has: a larger number is damaged."""

MAX_KIB: Final = 1 << 53

_DURATION: Final = re.compile(r"(?:(?:(\d{1,9}):)?(\d{1,9}):)?(\d{1,12})(?:\.(\d{1,9}))?", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?([kmgtp]?)([bw]?)", re.ASCII | re.IGNORECASE)
_PLACES: Final = re.compile(r"\d{1,8}(?:-\d{1,8})?", re.ASCII)
_ONE_CORE: Final = re.compile(r"[^/]+/(0|[1-9]\d{0,3})", re.ASCII)
_NCPUS: Final = re.compile(r":ncpus=(\d{1,8})", re.ASCII)
_NGPUS: Final = re.compile(r":ngpus=(\d{1,8})", re.ASCII)
_SCALE: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_WORD_BYTES: Final = 8


def duration_ms(text: str | None) -> int | None:
    """Milliseconds of `HH:MM:SS` (hours above 24, and a last part that was cut, are accepted), `MM:SS`, or plain
    seconds.
    """
    if not text:
        return None
    if len(text) == 8 and text[2] == text[5] == ":":  # nearly all: a third of the time of the pattern
        digits = text.replace(":", "")
        if len(digits) == 6 and digits.isdecimal() and digits.isascii():
            number = int(digits)
            return (number // 10000 * 3600 + number // 100 % 100 * 60 + number % 100) * 1000
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, fraction = match.groups()
    whole = int(seconds)
    if minutes:
        whole += int(minutes) * 60
        if hours:
            whole += int(hours) * 3600
    return whole * 1000 + (int(f"{fraction:0<3}"[:3]) if fraction else 0)


def memory_kib(text: str | None) -> int | None:
    """KiB, rounded up, of `3348kb`, `0b`, `4gb`, `12.27M`, words (`10kw`, of eight bytes) or plain bytes."""
    if not text:
        return None
    if text.endswith("kb") and (digits := text[:-2]).isdecimal() and len(digits) <= 15 and digits.isascii():
        return int(digits)
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    number, fraction, prefix, unit = match.groups()
    scale = _SCALE[prefix.lower()] * (_WORD_BYTES if unit in {"w", "W"} else 1)
    size = int(number) * scale
    if fraction:
        size += int(fraction) * scale // 10 ** len(fraction)
    kib = -(-size // 1024)
    return kib if kib < MAX_KIB else None


def exec_hosts(text: str) -> dict[str, int] | None:
    """Slots by host, in the order of the list: `n1/0+n1/1`, `n1/0-3+n2/0,2`, `n1/0*8`, `n1/0*0`, in any mixture.

    None: the list cannot be read.
    """
    slots: dict[str, int] = {}
    total = 0
    for part in text.split("+"):
        host, _, places = part.partition("/")
        if not host:
            return None
        count = 1 if not places or places.isdecimal() else _count(places)
        if count is None:
            return None
        slots[host] = slots.get(host, 0) + count
        total += count
        if total > MAX_SLOTS:
            return None
    return slots


def _count(places: str) -> int | None:
    _, star, times = places.partition("*")
    if star:
        return int(times) if _PLACES.fullmatch(times) and "-" not in times else None
    count = 0
    for span in places.split(","):
        if not _PLACES.fullmatch(span):
            return None
        begin, dash, stop = span.partition("-")
        first = int(begin)
        last = int(stop) if dash else first
        if last < first:
            return None
        count += last - first + 1
    return count


def exec_cores(text: str) -> tuple[str, ...]:
    """Core numbers by host of a TORQUE list that `exec_hosts` reads, in its order; (): it has none.

    In TORQUE the number after the slash is an execution slot of the host, from 0 to its `np`. In PBS Pro it is the
    job's place in the host's list of jobs, not a core (`hw_index` in its node_manager.c).
    """
    if "*" in text:  # PBS Pro
        return ()
    parts = text.split("+")
    if len(parts) == 1 and (only := _ONE_CORE.fullmatch(text)):
        return (only[1],)
    named: dict[str, list[int] | None] = {}
    for part in parts:
        host, _, places = part.partition("/")
        numbers = named.setdefault(host, [])
        if numbers is None:
            continue
        if places.isdecimal() and len(places) <= 8:
            numbers.append(int(places))
        elif places:
            numbers += cores.expand(places) or (cores.MOST,)
        else:  # a number of cores, without their numbers
            named[host] = None
        if len(numbers) > cores.MOST:
            named[host] = None
    texts = [cores.compact(numbers) if numbers and max(numbers) < cores.MOST else "" for numbers in named.values()]
    return tuple(texts) if any(texts) else ()


def vnode_cpus(text: str) -> int | None:
    """Sum of `ncpus` over an exec_vnode list such as `(n1:ncpus=2:ngpus=1)+(n2:ncpus=2)`; None: there is none."""
    return _sum(_NCPUS.findall(text))


def vnode_gpus(text: str) -> int | None:
    """Sum of `ngpus` over an exec_vnode list; None: there is none."""
    return _sum(_NGPUS.findall(text)) if ":ngpus=" in text else None


def _sum(counts: list[str]) -> int | None:
    total = sum(map(int, counts))
    return total if counts and total <= MAX_SLOTS else None


def node_gpus(text: str) -> int | None:
    """GPUs of a TORQUE node specification such as `2:ppn=8:gpus=1+n7:gpus=2`, which it grants as requested."""
    if "gpus=" not in text:
        return None
    total = 0
    for part in text.split("+"):
        words = part.split(":")
        nodes = int(words[0]) if _PLACES.fullmatch(words[0]) and "-" not in words[0] else 1
        for word in words[1:]:
            if word.startswith("gpus=") and _PLACES.fullmatch(word[5:]) and "-" not in word:
                total += nodes * int(word[5:])
    return total if 0 < total <= MAX_SLOTS else None


class Ending(NamedTuple):
    """How a run ended."""

    status: Status
    exit_code: int | None = None
    exit_signal: int | None = None
    end_reason: str | None = None


_START_CODES: Final[dict[int, str]] = {
    -1: "JOB_EXEC_FAIL1", -2: "JOB_EXEC_FAIL2", -3: "JOB_EXEC_RETRY", -4: "JOB_EXEC_INITABT", -5: "JOB_EXEC_INITRST",
    -6: "JOB_EXEC_INITRMG", -7: "JOB_EXEC_BADRESRT",
}  # fmt: skip
TORQUE_CODES: Final[Mapping[int, str]] = _START_CODES | {
    -8: "JOB_EXEC_CMDFAIL", -9: "JOB_EXEC_STDOUTFAIL", -10: "JOB_EXEC_OVERLIMIT_MEM", -11: "JOB_EXEC_OVERLIMIT_WT",
    -12: "JOB_EXEC_OVERLIMIT_CPUT", -13: "JOB_EXEC_RETRY_CGROUP", -14: "JOB_EXEC_RETRY_PROLOGUE",
}  # fmt: skip
PBS_CODES: Final[Mapping[int, str]] = _START_CODES | {
    -10: "JOB_EXEC_FAILUID", -11: "JOB_EXEC_RERUN", -12: "JOB_EXEC_CHKP", -13: "JOB_EXEC_FAIL_PASSWORD",
    -14: "JOB_EXEC_RERUN_ON_SIS_FAIL", -15: "JOB_EXEC_QUERST", -16: "JOB_EXEC_FAILHOOK_RERUN",
    -17: "JOB_EXEC_FAILHOOK_DELETE", -18: "JOB_EXEC_HOOK_RERUN", -19: "JOB_EXEC_HOOK_DELETE",
    -20: "JOB_EXEC_RERUN_MS_FAIL", -21: "JOB_EXEC_FAIL_SECURITY", -22: "JOB_EXEC_HOOKERROR",
    -23: "JOB_EXEC_FAIL_KRB5", -24: "JOB_EXEC_KILL_NCPUS_BURST", -25: "JOB_EXEC_KILL_NCPUS_SUM",
    -26: "JOB_EXEC_KILL_VMEM", -27: "JOB_EXEC_KILL_MEM", -28: "JOB_EXEC_KILL_CPUT", -29: "JOB_EXEC_KILL_WALLTIME",
    -30: "JOB_EXEC_JOINJOB",
}  # fmt: skip
_OVER_LIMIT: Final = ("JOB_EXEC_OVERLIMIT", "JOB_EXEC_KILL", "JOB_EXEC_CMDFAIL")


_SUCCESS: Final = Ending("completed", 0)


def ending(exit_status: int | None, *, deleted: bool, codes: Mapping[int, str]) -> Ending:
    """The meaning of an Exit_status: 0..255 from the program, 256 + signal, negative codes of the server.

    `deleted`: a D record came before the end of the run.
    """
    if exit_status is None:
        return Ending("cancelled" if deleted else "completed", end_reason="no Exit_status")
    if exit_status == 0:
        return _SUCCESS
    if exit_status < 0:
        name = codes.get(exit_status, "")
        reason = f"{exit_status} {name}".rstrip()
        if deleted:
            return Ending("cancelled", end_reason=reason)
        return Ending("failed" if name.startswith(_OVER_LIMIT) else "aborted", end_reason=reason)
    status: Status = "cancelled" if deleted else "failed"
    if 256 < exit_status < 256 + 128:
        return Ending(status, exit_signal=exit_status - 256, end_reason=str(exit_status))
    return Ending(status, exit_status, end_reason=str(exit_status) if exit_status > 255 else None)
