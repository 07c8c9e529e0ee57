"""What other publishers get wrong in a message (facts on formats, 5), each as a test that ours does not.

Those of ARC's publisher that show in its sample messages are compared record by record in `tests.agreement`.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from lxml import etree

from formats.apel.fold import Fold
from formats.apel.job import ApelJobFormat
from formats.base import RecordFormat
from formats.check.grammar import validate
from formats.job import Benchmark, Host, Job
from formats.rule_codes import CannotRenderError
from formats.view import View
from formats.xml.emi_car import NAMESPACES as CAR
from formats.xml.emi_car import ComputeRecordFormat
from formats.xml.ogf_ur import UsageRecordFormat
from formats.xml.read import read

VIEW = View(site="S")
FACTS: dict[str, Any] = {
    "record_id": "ur-1", "system": "arc", "status": "completed", "local_id": "42", "local_user": "ada", "vo": "atlas",
    "user_dn": "/O=Grid/CN=Ada", "fqans": ("/atlas/Role=production",), "queue": "main", "wall_ms": 10_000,
    "cpu_ms": 15_000, "submit": 1_789_999_000, "start": 1_790_000_000, "end": 1_790_000_010, "nodes": 1, "cores": 8,
    "endpoint_url": "https://ce1.example.org:443/arex", "endpoint_type": "org.nordugrid.arcrest",
    "memory_rss_kib": 1, "memory_virtual_kib": 2, "scratch_bytes": 3, "stage_in_bytes": 4,
    "benchmarks": (Benchmark("hepscore23", 14.2),),
}  # fmt: skip
FORMATS = (UsageRecordFormat, ComputeRecordFormat)


def job(**facts: Any) -> Job:
    return Job(**{**FACTS, **facts})


def text(made: type[UsageRecordFormat | ComputeRecordFormat | ApelJobFormat], **facts: Any) -> str:
    form: RecordFormat = made(VIEW)
    return form.message([form.record(job(**facts), 1_790_000_100).body]).decode("ascii")


@pytest.mark.parametrize("made", FORMATS)
def test_no_value_is_written_without_escaping(made: type[UsageRecordFormat | ComputeRecordFormat]) -> None:
    names = {"name": "a<b&c>]]>", "user_dn": "/O=A&B/CN=<x>", "queue": '"q"', "project": "p'&amp;"}
    message = text(made, **names)
    root = etree.fromstring(message.encode())
    found = {element.text for element in root.iter() if element.text}
    assert set(names.values()) <= found


@pytest.mark.parametrize("fqans", [(), ("/a",), ("/a/Role=x", "/a", "/b/Role=y"), ("a", "/"), ("/Role=x",)])
def test_vo_attributes_are_balanced_for_any_attributes(fqans: tuple[str, ...]) -> None:
    assert validate("ogf-ur", text(UsageRecordFormat, fqans=fqans).encode()) == []


@pytest.mark.parametrize("made", FORMATS)
def test_elements_are_in_the_order_of_the_schema(made: type[UsageRecordFormat | ComputeRecordFormat]) -> None:
    assert validate(made.name, text(made).encode()) == []
    message = text(made)
    assert (message.index("<LocalUserId") < message.index("<GlobalUserName")) is (made is UsageRecordFormat)
    assert message.index("<EndTime") < message.index("<StartTime")


def test_start_is_not_the_submission_and_has_a_place_of_its_own() -> None:
    message = text(UsageRecordFormat)
    assert "<StartTime>2026-09-21T14:13:20Z</StartTime>" in message
    assert "<deisa:SubmitTime>2026-09-21T13:56:40Z</deisa:SubmitTime>" in message


def test_create_time_is_that_of_the_record_and_not_today() -> None:
    assert text(UsageRecordFormat) == text(UsageRecordFormat)
    assert 'urf:createTime="2026-09-21T14:15:00Z"' in text(UsageRecordFormat)


def test_every_host_is_published_and_the_first_is_the_primary_one() -> None:
    hosts = (Host("wn1.example.org"), Host("wn2.example.org"), Host("wn3.example.org"))
    others, primary = "<Host>wn2.example.org</Host><Host>wn3.example.org</Host>", "wn1.example.org</Host>"
    message = text(UsageRecordFormat, hosts=hosts)
    assert f'{others}<Host urf:primary="true">{primary}' in message, "SGAS keeps the last"
    assert [record.job.hosts for record in read(message.encode())] == [hosts]
    assert f'<Host urf:primary="true">{primary}{others}' in text(ComputeRecordFormat, hosts=hosts)


def test_an_ipv6_address_is_not_a_host_name() -> None:
    assert "<SubmitHost>" not in text(UsageRecordFormat, client_host="2001:db8::1")


@pytest.mark.parametrize("host", ["192.0.2.1", "130.237.1.40", "my_host", "a.t.example.org"])
def test_a_client_host_that_sgas_takes_is_sent(host: str) -> None:
    assert f"<SubmitHost>{host}</SubmitHost>" in text(UsageRecordFormat, client_host=host)


def test_submit_host_of_a_car_has_no_attributes_and_is_that_of_sync() -> None:
    assert re.findall("<SubmitHost(.*)</SubmitHost>", text(ComputeRecordFormat)) == [
        ">arcrest:https://ce1.example.org:443/arex"
    ]
    assert Fold(VIEW).add(job()).submit_host == "arcrest:https://ce1.example.org:443/arex"


@pytest.mark.parametrize(
    ("interface", "host"),
    [
        ("org.nordugrid.internal", "internal:https://ce1.example.org:443/arex"),
        ("org.nordugrid.arcrest", "arcrest:https://ce1.example.org:443/arex"),
        ("org.ogf.glue.emies.activitycreation", "https://ce1.example.org:443/arex"),
    ],
)
def test_the_prefix_of_an_interface_is_removed_and_not_its_letters(interface: str, host: str) -> None:
    assert f"SubmitHost: {host}\n" in text(ApelJobFormat, endpoint_type=interface)


def test_a_car_names_the_namespace_of_1_2_and_no_other() -> None:
    assert CAR[""] == "http://eu-emi.eu/namespaces/2012/11/computerecord"
    assert "2012/10" not in text(ComputeRecordFormat)


def test_groups_and_roles_are_of_the_types_that_the_server_reads() -> None:
    kinds = re.findall('<GroupAttribute urf:type="([^"]+)"', text(ComputeRecordFormat))
    assert {"FQAN", "group", "role"} <= set(kinds)


def test_a_missing_benchmark_is_never_1() -> None:
    for made in (ComputeRecordFormat, ApelJobFormat):
        with pytest.raises(CannotRenderError, match="ServiceLevel"):
            text(made, benchmarks=())


def test_a_role_that_is_none_is_none() -> None:
    assert "VORole: None\n" in text(ApelJobFormat, fqans=("/atlas/Role=NULL/Capability=NULL",))


def test_summaries_are_grouped_after_normalising() -> None:
    fold = Fold(VIEW)
    role, score = "/atlas/Role=production/Capability=NULL", Benchmark("HEPSCORE23", 14.2004)
    for each in (job(), job(fqans=(role,), benchmarks=(score,))):
        fold.add(each)
    assert [group.jobs for group in fold.groups()] == [2]


@pytest.mark.parametrize("code", [-1, 0, 255, 2**31 - 1])
def test_exit_codes_are_signed(code: int) -> None:
    assert f"<ExitStatus>{code}</ExitStatus>" in text(ComputeRecordFormat, exit_code=code)


def test_a_job_without_a_local_user_is_valid_too() -> None:
    for made in FORMATS:
        message = text(made, local_user=None, user_dn=None, vo=None, fqans=())
        assert validate(made.name, message.encode()) == []
        assert "<UserIdentity></UserIdentity>" not in message


def test_a_record_id_has_no_blanks() -> None:
    assert 'urf:recordId="a%20b"' in text(ComputeRecordFormat, record_id="a b")


def test_withholding_a_name_changes_no_job() -> None:
    one = job()
    ApelJobFormat(View(site="S", dn="withhold")).record(one, 0)
    assert one == job()
