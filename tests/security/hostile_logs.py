"""Logs of every kind, written as their batch systems write them, with a text of a user in one field of one run.

Whatever else a batch system escapes or not is written so too (docs/reference/sources). The file holds runs of others
before and after the attacker's, and the attacker's own.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from publisher.config import schema
from publisher.errors import SourceError
from publisher.sources import make_source
from tests.publisher.sources.log_reading import Seen, read_on

START: Final = 1_793_491_010
ATTACKER: Final = 8
OTHERS: Final = (5, 6, 9, 10)
HARMLESS: Final = b"harmless"


class HostileLog(ABC):
    """A log as its batch system writes it: the runs of others around the attacker's."""

    kind: str
    file: str = "log"
    fields: tuple[str, ...]
    delimiters: tuple[bytes, ...] = ()
    headers: tuple[bytes, ...] = ()
    may_differ: tuple[str, ...] = ("name", "extras")

    def content(self, field: str, text: bytes) -> bytes:
        """The log, with the text in a field of the attacker's."""
        return b"".join(
            [self.job(number, field, text if number == ATTACKER else HARMLESS) for number in (5, 6, ATTACKER, 9, 10)]
        )

    @abstractmethod
    def job(self, number: int, field: str, text: bytes) -> bytes:
        """All that is written for a job."""

    def can_be_written(self, field: str, text: bytes) -> bool:
        """Whether the batch system takes such a text at all."""
        return True

    def forged(self) -> Sequence[bytes]:
        """Records that a user would forge: a run that never was, and other facts of somebody else's run."""
        return [self.job(number, self.fields[0], b"forged").rstrip(b"\n") for number in (77, 5)]

    def read(self, folder: Path, content: bytes) -> Seen:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / self.file).write_bytes(content)
        settings = schema.SourceSettings(type=self.kind, path=folder / self.file, cluster="c1", timezone="UTC")
        source = make_source("ce1", settings)
        seen = Seen()
        try:
            read_on(source, seen)
        except SourceError as error:
            pytest.fail(f"the source cannot be read: {error}")
        seen.jobs = {key: job for key, job in seen.jobs.items() if job.finished or job.slave}
        return seen


def others(number: int) -> int:
    return START + 10 * number


class GridEngineColon(HostileLog):
    """No escaping of any kind. qsub refuses `:`, `/`, blanks and control characters; here nothing is refused."""

    kind = "gridengine"
    file = "accounting"
    fields = ("job_name", "account", "category")
    delimiters = (b":", b",")
    headers = (b"# Version: 8.1.9", b"{}")
    may_differ = ("name", "account", "extras")

    def can_be_written(self, field: str, text: bytes) -> bool:
        """Text that is not the beginning of a record on a separate line, which the real rest would complete: see the
        page."""
        return b"\n" not in text or text.rpartition(b"\n")[2].count(b":") < 4

    def job(self, number: int, field: str, text: bytes) -> bytes:
        name, account, category = b"name", b"sge", b"-u u5 -l s=x"
        if field == "job_name":
            name = text
        elif field == "account":
            account = text
        else:
            category = b"-u u5 -l s=" + text
        start = others(number)
        head = f"all.q:n1:g:u{number}:".encode()
        numbers = (
            f"0:{start - 10}:{start}:{start + 100}:0:0:100:1.0:1.0:{':'.join(['0'] * 15)}:p:d:NONE:4:0:2.0:0.1:0.2"
        )
        tail = b":0.0:NONE:1024.0:0:0\n"
        whole = head + name + f":{number}:".encode() + account + b":" + numbers.encode() + b":" + category + tail
        if number not in {6, 10}:
            return whole
        slave = whole.replace(b":0.0:NONE:1024.0", b":0.0:1.n2:1024.0").replace(b":p:d:NONE:", b":p:d:mpi:")
        return slave + whole.replace(b":p:d:NONE:", b":p:d:mpi:")


class GridEngineJsonl(HostileLog):
    """RapidJSON: quotes, backslashes and control characters are escaped, all other bytes are written as they are."""

    kind = "gridengine"
    file = "accounting.jsonl"
    fields = ("job_name", "account", "category", "submit_cmd_line")
    delimiters = (b'"', b"}", b"\\")
    headers = (b"{}",)
    may_differ = ("name", "account", "extras")

    def job(self, number: int, field: str, text: bytes) -> bytes:
        start = others(number) * 1_000_000
        values = {"job_name": "n", "account": "sge", "category": "-u x", "submit_cmd_line": "qsub", field: "MARK"}
        record = {
            "job_number": number, "task_number": 0, "start_time": start, "end_time": start + 100_000_000,
            "owner": f"u{number}", "group": "g", "qname": "all.q", "hostname": "n1", "department": "d", "slots": 4,
            "priority": 0, "submission_time": start - 10, "pe_taskid": "NONE", "failed": 0, "exit_status": 0, **values,
            "usage": {"rusage": {"ru_utime": 1.0, "ru_stime": 1.0}, "usage": {"cpu": 2.0, "maxvmem": 1024}},
        }  # fmt: skip
        return json.dumps(record, separators=(",", ":")).encode().replace(b"MARK", json_escaped(text)) + b"\n"


def json_escaped(text: bytes) -> bytes:
    text = text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return re.sub(rb"[\0-\x1f]", lambda found: b"\\u%04x" % found[0][0], text)


def stamp(at: int) -> bytes:
    return time.strftime("%m/%d/%Y %H:%M:%S", time.gmtime(at)).encode()


class Torque(HostileLog):
    """No escaping of any kind (the facts on sources, 4)."""

    kind = "torque"
    file = "20261101"
    fields = ("account", "jobname", "Resource_List.software")
    delimiters = (
        b" ", b";", b"=", b" start=1 ", b" end=1 ", b" project=p ", b" exec_host=n9/0-998 ", b" user=rival ",
        b" Resource_List.nodes=9:gpus=9 ", b" session=9 end=9 Exit_status=0 ", b" queue=z ctime=1 qtime=1 etime=1 ",
        b" resources_used.cput=00:00:00 ",
    )  # fmt: skip
    headers = (b"11/01/2026 00:00:00;Q;7.s;queue=q", b"11/01/2026 00:00:00;D;9.s;requestor=x@y")
    may_differ = ("name", "account", "extras")

    def can_be_written(self, field: str, text: bytes) -> bool:
        """Requested resources end a start record, so a line feed in them cannot be distinguished from its end: see the
        page."""
        return not (field.startswith("Resource_List.") and re.search(rb"\n\d\d/\d\d/\d{4} ", text))

    def text_of(self, number: int, field: str, text: bytes, *, ended: bool) -> bytes:
        start = others(number)
        account = b"account=" + text + b" " if field == "account" else b""
        software = b" Resource_List.software=" + text if field == "Resource_List.software" else b""
        name = text if field == "jobname" else b"name"
        found = (
            b"user=u%d group=g " % number + account + b"jobname=" + name
            + b" queue=q ctime=%d qtime=%d etime=%d start=%d owner=u%d@h exec_host=n1/0-3 Resource_List.nodes=1:ppn=4"
            % (start - 10, start - 10, start - 10, start, number)
            + software + b" Resource_List.walltime=01:00:00"
        )  # fmt: skip
        if ended:
            found += (
                b" session=1 total_execution_slots=4 unique_node_count=1 end=%d Exit_status=0"
                b" resources_used.cput=00:00:10"
                b" resources_used.mem=10kb resources_used.vmem=20kb resources_used.walltime=00:01:40" % (start + 100)
            )
        return found

    def content(self, field: str, text: bytes) -> bytes:
        numbers = (5, 6, ATTACKER, 9, 10)
        texts = {number: text if number == ATTACKER else HARMLESS for number in numbers}
        lines = [stamp(others(number) - 10) + b";Q;%d.s;queue=q\n" % number for number in numbers]
        lines += [self.line(b"S", number, field, texts[number]) for number in numbers]
        return b"".join([*lines, *[self.line(b"E", number, field, texts[number]) for number in numbers]])

    def line(self, kind: bytes, number: int, field: str, text: bytes) -> bytes:
        found = self.text_of(number, field, text, ended=kind == b"E")
        at = others(number) + (100 if kind == b"E" else 0)
        return stamp(at) + b";" + kind + b";%d.s;" % number + found + b"\n"

    def job(self, number: int, field: str, text: bytes) -> bytes:
        return self.line(b"E", number, field, text)


class Pbs(Torque):
    """The account is always quoted, project and resources only if they hold a blank, the name never; no escapes."""

    kind = "pbs"
    fields = ("account", "project", "jobname", "Resource_List.software")
    delimiters = (*Torque.delimiters, b'"', b"'", b" run_count=9 ", b" resources_used.ncpus=1 ")
    may_differ = ("name", "account", "project", "extras")

    def text_of(self, number: int, field: str, text: bytes, *, ended: bool) -> bytes:
        start = others(number)
        account = text if field == "account" else b"acc"
        project = text if field == "project" else b"_pbs_project_default"
        name = text if field == "jobname" else b"name"
        software = text if field == "Resource_List.software" else b"x"
        if b" " in project:
            project = b'"' + project + b'"'
        if b" " in software:
            software = b"'" + software + b"'" if b'"' in software else b'"' + software + b'"'
        found = (
            b'user=u%d group=g account="' % number + account + b'" project=' + project + b" jobname=" + name
            + b" queue=q ctime=%d qtime=%d etime=%d start=%d exec_host=n1/0*4 exec_vnode=(n1:ncpus=4)"
            b" Resource_List.ncpus=4" % (start - 10, start - 10, start - 10, start)
            + b" Resource_List.software=" + software + b" Resource_List.walltime=01:00:00"
        )  # fmt: skip
        if ended:
            found += (
                b" session=1 end=%d Exit_status=0 resources_used.cpupercent=0 resources_used.cput=00:00:10"
                b" resources_used.mem=10kb resources_used.ncpus=4 resources_used.vmem=20kb"
                b" resources_used.walltime=00:01:40 eligible_time=00:00:01 run_count=1" % (start + 100)
            )
        return found


class Lsf(HostileLog):
    """Text is in double quotes, a quote in it is doubled; line feeds are written unchanged."""

    kind = "lsf"
    file = "lsb.acct"
    fields = ("jobName", "command", "projectName", "resReq", "cwd", "app", "jobGroupName")
    delimiters = (b'"', b'""', b'" "', b" ", b'"\n"')
    headers = (b'"JOB_FINISH" "10.1"', b'"EVENT_ADRSV_FINISH" "10.1" 1 1 0 "u" "u" 0 "" 1 "n1" 1 0 0')
    may_differ = ("name", "project", "extras")

    def job(self, number: int, field: str, text: bytes) -> bytes:
        def of(name: str, plain: bytes = b"x") -> bytes:
            return b'"' + (text if name == field else plain).replace(b'"', b'""') + b'"'

        start = others(number)
        before = b'"JOB_FINISH" "10.1" %d %d 1001 33554482 1 %d 0 0 %d "u%d" "normal" ' % (
            start + 100, number, start - 10, start, number,
        )  # fmt: skip
        before += of("resReq", b"") + b' "" "" "login1" ' + of("cwd") + b' "" "o" "e" "1.2" 0 1 "n1" 64 60.0 '
        after = of("jobName") + b" " + of("command") + b" 1.5 0.5 1000 0 -1 0 0 100 0 0 0 0 -1 0 0 0 5 6 -1 "
        after += b'"" ' + of("projectName") + b' 0 1 "" "" 0 2048 4096 "" "" "" "" 0 "" 0 "" -1 "/p/alice" "" '
        after += of("app", b"") + b' "" -1 ' + of("jobGroupName", b"/g1") + b' "" 5136 ""\n'
        return before + after


def condor(number: int, field: str) -> dict[str, object]:
    """The ad of a job; a field that is not of the harmless ad is the user's own attribute."""
    start = others(number)
    return {
        "Cmd": "/home/x/run.sh", "Environment": "A=b", "Iwd": "/home/x", "ClusterId": number, "ProcId": 0,
        "CompletionDate": start + 100, "CpusProvisioned": 4, "CumulativeRemoteSysCpu": 1.5,
        "CumulativeRemoteUserCpu": 10.0, "ExitBySignal": False, "ExitCode": 0,
        "GlobalJobId": f"schedd.example.org#{number}.0#{start - 10}", "JobStartDate": start, "JobStatus": 4,
        "JobUniverse": 5, "Owner": f"u{number}", "QDate": start - 10, "RemoteWallClockTime": 100.0,
        "JobBatchName": "name", "ProjectName": "p", "RemoveReason": "via condor_rm", "AcctGroup": "g",
        "MachineAttrNote0": "x", field: "MARK", "ZLast": 1,
    }  # fmt: skip


class Condor(HostileLog):
    kind = "htcondor"
    fields = (
        "JobBatchName", "ProjectName", "RemoveReason", "AcctGroup", "MachineAttrNote0", "Environment", "Cmd", "Iwd",
        "MyNote",
    )  # fmt: skip
    may_differ = ("name", "project", "account", "end_reason", "extras")


def condor_text(value: object) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return b'"' + value.encode() + b'"' if isinstance(value, str) else str(value).encode()


class CondorHistory(Condor):
    """Old syntax: only quotes are escaped. The schedd takes no attribute with a line feed or carriage return."""

    file = "history"
    delimiters = (b'"', b"\\", b" = ", b"***")
    headers = (b"*** Offset = 0 ClusterId = 5 ProcId = 0", b"")

    def escaped(self, text: bytes) -> bytes:
        return text.replace(b'"', b'\\"')

    def can_be_written(self, field: str, text: bytes) -> bool:
        return not re.search(rb"[\0\r\n]", text)

    def job(self, number: int, field: str, text: bytes) -> bytes:
        lines = [name.encode() + b" = " + condor_text(value) for name, value in condor(number, field).items()]
        found = b"\n".join(lines).replace(b"MARK", self.escaped(text))
        return found + b'\n*** Offset = 0 ClusterId = %d ProcId = 0 Owner = "u%d"\n' % (number, number)

    def forged(self) -> Sequence[bytes]:
        return []


class CondorLong(CondorHistory):
    """New syntax, as of `condor_history -long`: control characters are escaped; ads end with a blank line."""

    file = "long"

    def escaped(self, text: bytes) -> bytes:
        text = text.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\r", b"\\r")
        return re.sub(rb"[\0-\x1f\x7f]", lambda found: b"\\%03o" % found[0][0], text)

    def can_be_written(self, field: str, text: bytes) -> bool:
        return b"\0" not in text

    def job(self, number: int, field: str, text: bytes) -> bytes:
        return super().job(number, field, text).rpartition(b"*** ")[0] + b"\n"


class CondorJson(Condor):
    """`condor_history -json`: quotes, backslashes and most control characters are escaped."""

    file = "history.json"
    delimiters = (b'"', b"}", b"\n}\n,\n{", b"\\")
    headers = (b"[", b"]")

    def content(self, field: str, text: bytes) -> bytes:
        return b"[\n" + super().content(field, text).removesuffix(b",\n") + b"]\n"

    def job(self, number: int, field: str, text: bytes) -> bytes:
        return json.dumps(condor(number, field), indent=1).encode().replace(b"MARK", self.escaped(text)) + b"\n,\n"

    def escaped(self, text: bytes) -> bytes:
        return json_escaped(text)


class CondorJsonLines(CondorJson):
    """`condor_history -jsonl`, with control characters that are not escaped, as older versions leave some."""

    file = "history.jsonl"

    def content(self, field: str, text: bytes) -> bytes:
        return HostileLog.content(self, field, text)

    def job(self, number: int, field: str, text: bytes) -> bytes:
        return json.dumps(condor(number, field)).encode().replace(b"MARK", self.escaped(text)) + b"\n"

    def escaped(self, text: bytes) -> bytes:
        text = text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        return text.replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\0", b"\\u0000")


class CondorXml(Condor):
    """`condor_history -xml`: markup is escaped, control characters are not."""

    file = "history.xml"
    delimiters = (b"<", b"&", b"]]>", b"</s></a></c>", b"</classads>")
    headers = (b'<?xml version="1.0"?>', b"</classads>")

    def content(self, field: str, text: bytes) -> bytes:
        head = b'<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "classads.dtd">\n<classads>\n'
        return head + super().content(field, text) + b"</classads>\n"

    def job(self, number: int, field: str, text: bytes) -> bytes:
        words = [b"<c>"]
        for name, value in condor(number, field).items():
            kind = "b" if isinstance(value, bool) else "i" if isinstance(value, int) else "s"
            kind = "r" if isinstance(value, float) else kind
            inner = f'<b v="{"t" if value else "f"}"/>' if kind == "b" else f"<{kind}>{value}</{kind}>"
            words.append(f'    <a n="{name}">{inner}</a>'.encode())
        escaped = text.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
        return b"\n".join([*words, b"</c>\n"]).replace(b"MARK", escaped)

    def can_be_written(self, field: str, text: bytes) -> bool:
        return b"\0" not in text


class Dqs(HostileLog):
    """No escaping of any kind."""

    kind = "dqs"
    file = "act_file"
    fields = ("job_name", "complex")
    delimiters = (b":", b",")
    headers = (b"q:n1:1",)

    def can_be_written(self, field: str, text: bytes) -> bool:
        """Not the beginning of a record on a line of its own, which the true rest completes: see the page."""
        return b"\n" not in text or text.rpartition(b"\n")[2].count(b":") < (4 if field == "job_name" else 3)

    def job(self, number: int, field: str, text: bytes) -> bytes:
        start = others(number)
        name, complexes = (text, b"aix") if field == "job_name" else (b"name", text)
        first = b"q:n1:1:" + complexes + b":g:u%d:" % number + name
        tail = b":DQS.%d:%d:%d:%d:%d:0:8:0:0:2048:0:0:0:0:10:2:0:3:4:0:0:0:5:6\n" % (
            number, number, start - 10, start, start + 100,
        )  # fmt: skip
        slave = first.replace(b"q:n1:1:", b"q:n2:0:") + tail if number in {6, 10} else b""
        return slave + first + tail


KINDS: Final = (
    GridEngineColon(), GridEngineJsonl(), Torque(), Pbs(), Lsf(), CondorHistory(), CondorLong(), CondorJson(),
    CondorJsonLines(), CondorXml(), Dqs(),
)  # fmt: skip
