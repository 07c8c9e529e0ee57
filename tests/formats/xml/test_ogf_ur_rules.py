"""The rules of the SGAS server (facts on formats, 1.4; facts on receivers, 1), each a test named after it."""

from __future__ import annotations

import html
import re
from typing import Any

import msgspec
import pytest

from formats.base import Rendered
from formats.check.message import inspect_message
from formats.job import Benchmark, Host, Job, Transfer
from formats.rule_codes import CannotRenderError
from formats.view import View
from formats.xml.ogf_ur import UsageRecordFormat
from publisher.simulator.sgas_records import read
from publisher.simulator.sgas_rows import usage_record

CREATED = 1_795_000_000
VIEW = View(site="EXAMPLE-SITE")


def render(view: View = VIEW, /, **facts: Any) -> Rendered:
    job = Job(**{"record_id": "ur-1", "system": "slurm", "status": "completed", "cluster": "ce1.example.org", **facts})
    return UsageRecordFormat(view).record(job, CREATED)


def values(rendered: Rendered, element: str) -> list[str]:
    return re.findall(f"<{element}(?: [^>]*)?>([^<]*)</{element}>", rendered.body.decode())


def noted(rendered: Rendered) -> list[tuple[str, str | None]]:
    return [(note.field, note.after) for note in rendered.notes]


def test_record_id_and_create_time_are_there() -> None:
    assert b'urf:createTime="2026-11-18T11:06:40Z" urf:recordId="ur-1"' in render().body


def test_global_job_id_is_the_record_id_where_the_source_has_none() -> None:
    assert values(render(), "GlobalJobId") == ["ur-1"]
    assert values(render(global_id="g"), "GlobalJobId") == ["g"]


def test_record_id_longer_than_1000_is_held() -> None:
    assert b"r" * 1000 in render(record_id="r" * 1000).body
    with pytest.raises(CannotRenderError, match="at most 1000"):
        render(record_id="r" * 1001)


def test_a_record_id_that_the_index_of_sgas_cannot_hold_is_held() -> None:
    assert render(record_id="\u4f5c" * 897).body
    with pytest.raises(CannotRenderError, match=r"2694 bytes in UTF-8; at most 2692 \(the index of SGAS"):
        render(record_id="\u4f5c" * 898)


def test_record_id_stays_a_token() -> None:
    rendered = render(record_id=" a b\n\x00")
    assert b'urf:recordId="%20a%20b%0A%00"' in rendered.body
    assert noted(rendered) == [("RecordIdentity@recordId", "%20a%20b%0A%00")]


def test_machine_name_is_required() -> None:
    with pytest.raises(CannotRenderError, match="MachineName"):
        render(cluster=None)
    assert values(render(View(site="S", machine_name="m1.example.org"), cluster=None), "MachineName") == [
        "m1.example.org"
    ]
    assert values(render(endpoint_url="https://ce2.example.org:443/arex"), "MachineName") == ["ce2.example.org"]


@pytest.mark.parametrize("host", ["ce1.t.example.org", "ce_2.example.org", "_a.b", "n", "my_cluster", "192.0.2.1"])
def test_machine_name_is_any_host_name_that_sgas_takes(host: str) -> None:
    rendered = render(cluster=host)
    assert values(rendered, "MachineName") == [host]
    assert noted(rendered) == []
    assert values(render(endpoint_url=f"https://{host}:443/arex"), "MachineName") == [host.lower()]


@pytest.mark.parametrize("host", ["2001:db8::1", "a b", "ce1..example.org", "ce1.example.org.", "-a", "a-", "ce1:443"])
def test_machine_name_that_is_not_a_host_name_is_held_and_the_remedy_named(host: str) -> None:
    with pytest.raises(CannotRenderError, match=r"MachineName: .* is not a host name, or .*. Set `machine_name` of"):
        render(cluster=host)
    view = View(site="S", machine_name="ce1.example.org")
    assert values(render(view, cluster=host), "MachineName") == ["ce1.example.org"]


def test_an_ipv6_endpoint_is_held_and_the_remedy_named() -> None:
    with pytest.raises(CannotRenderError, match=r"2001:db8::1 is not a host name, or .*. Set `machine_name` of"):
        render(endpoint_url="https://[2001:db8::1]:443/arex")


def test_machine_name_longer_than_200_is_held() -> None:
    with pytest.raises(CannotRenderError, match="MachineName"):
        render(cluster="m" * 201)


def test_local_job_id_longer_than_120_is_left_out() -> None:
    assert values(render(local_id="1" * 120), "LocalJobId") == ["1" * 120]
    rendered = render(local_id="1" * 121)
    assert values(rendered, "LocalJobId") == []
    assert noted(rendered) == [("LocalJobId", None)]
    assert values(render(View(site="S", local_id_prefix="p"), local_id="1" * 120), "LocalJobId") == []


def test_local_job_id_with_a_slash_first_is_left_out() -> None:
    rendered = render(local_id="/1")
    assert values(rendered, "LocalJobId") == []
    assert noted(rendered) == [("LocalJobId", None)]
    assert values(render(View(site="S", local_id_prefix="p"), local_id="/1"), "LocalJobId") == ["p/1"]


def test_no_element_is_empty() -> None:
    rendered = render(local_id="", name=" ", queue="\t", project="", user_dn="", vo="", runtime_environments=("",))
    assert not re.search(rb"<([\w:]+)[^>/]*>\s*</\1>", rendered.body)


@pytest.mark.parametrize(
    ("field", "element", "longest", "shortened"),
    [
        ("name", "JobName", 1000, True),
        ("queue", "Queue", 200, True),
        ("project", "ProjectName", 200, True),
        ("local_user", "LocalUserId", 100, False),
        ("user_dn", "GlobalUserName", 1000, False),
        ("vo", "vo:Name", 1000, False),
    ],
)
def test_columns_have_their_lengths(field: str, element: str, longest: int, shortened: bool) -> None:
    assert values(render(VIEW, **{field: "x" * longest}), element) == ["x" * longest]
    rendered = render(VIEW, **{field: "x" * (longest + 1)})
    assert values(rendered, element) == (["x" * longest] if shortened else [])
    assert len(rendered.notes) == 1


def test_node_count_is_a_small_integer() -> None:
    assert values(render(nodes=32_767), "NodeCount") == ["32767"]
    rendered = render(nodes=32_768)
    assert values(rendered, "NodeCount") == []
    assert noted(rendered) == [("NodeCount", None)]


def test_zero_is_omitted_where_only_positive_numbers_fit() -> None:
    rendered = render(nodes=0, cores=0, memory_rss_kib=0, scratch_bytes=0, stage_in_bytes=0, swap_kib=0)
    assert not re.search(rb"NodeCount|Processors|Memory|Disk|Network|Swap", rendered.body)
    assert rendered.notes == ()


@pytest.mark.parametrize("wall_s", [-1, 2**31])
def test_wall_duration_outside_32_bits_is_held(wall_s: int) -> None:
    with pytest.raises(CannotRenderError, match="WallDuration"):
        render(wall_ms=wall_s * 1000)


def test_processors_outside_32_bits_are_held() -> None:
    with pytest.raises(CannotRenderError, match="Processors"):
        render(cores=2**31)


def test_cpu_durations_are_summed_so_only_parts_or_total_are_sent() -> None:
    assert values(render(cpu_ms=15_000, cpu_user_ms=10_000, cpu_system_ms=5_000), "CpuDuration") == ["PT10S", "PT5S"]
    assert values(render(cpu_ms=16_000, cpu_user_ms=10_000, cpu_system_ms=5_000), "CpuDuration") == ["PT16S"]
    assert values(render(cpu_ms=16_000), "CpuDuration") == ["PT16S"]


def test_memory_is_of_a_type_that_the_server_keeps() -> None:
    assert set(
        re.findall(r'Memory [^>]*urf:type="(\w+)"', render(memory_rss_kib=1, memory_virtual_kib=2).body.decode())
    ) == {
        "physical",
        "shared",
    }


def test_exit_code_is_an_int32() -> None:
    assert values(render(exit_code=-(2**31)), "sgas:ExitCode") == ["-2147483648"]
    assert noted(render(exit_code=2**31)) == [("ExitCode", None)]


def test_a_download_without_an_url_is_left_out() -> None:
    rendered = render(transfers=(Transfer("download", " "), Transfer("upload", "https://se.example.org/f", 5)))
    assert b"FileDownload" not in rendered.body
    assert values(rendered, "tr:URL") == ["https://se.example.org/f"]
    assert noted(rendered) == [("FileTransfers/URL", None)]


def test_vo_groups_and_roles_are_written_as_documented() -> None:
    fqans = ("/atlas/Role=production", "/atlas/no/Role=NULL", "/atlas/Role=production")
    rendered = render(fqans=fqans)
    assert values(rendered, "vo:Name") == ["atlas"]
    assert values(rendered, "vo:Group") == ["atlas", "atlas/no"]
    assert values(rendered, "vo:Role") == ["production"]
    assert values(render(View(site="S", vo_groups_for_sgas="arc"), fqans=fqans), "vo:Group") == ["/atlas", "/atlas/no"]


def test_hosts_and_submit_hosts_are_host_names() -> None:
    rendered = render(hosts=(Host("wn 1"), Host("wn_2.t.example.org"), Host("wn3")), client_host="2001:db8::1")
    assert values(rendered, "Host") == ["wn3", "wn_2.t.example.org"]
    assert b'<Host urf:primary="true">wn_2' in rendered.body, "the primary one last"
    assert noted(rendered) == [("SubmitHost", None), ("Host", None)]
    assert values(render(client_host="130.237.1.40"), "SubmitHost") == ["130.237.1.40"]


@pytest.mark.parametrize("fact", ["memory_rss_kib", "memory_virtual_kib"])
def test_memory_that_does_not_fit_64_bits_of_bytes_is_left_out(fact: str) -> None:
    fits: dict[str, Any] = {fact: 2**53 - 1}
    assert values(render(**fits), "Memory") == [str(2**53 - 1)]
    rendered = render(**{fact: 2**53})
    assert values(rendered, "Memory") == []
    assert noted(rendered) == [("Memory", None)]


def test_a_name_that_is_too_long_for_its_index_is_left_out() -> None:
    name = "/CN=" + "\u4f5c" * 896  # 2,692 bytes
    assert len(name.encode()) == 2692
    assert noted(render(user_dn=name)) == []
    rendered = render(user_dn=name + "a")
    assert values(rendered, "GlobalUserName") == []
    assert noted(rendered) == [("GlobalUserName", None)]
    assert "2692 bytes" in rendered.notes[0].rule


def test_an_url_that_is_too_long_for_its_index_is_shortened() -> None:
    fits = "u" * 2500
    (sent,) = values(render(transfers=(Transfer("upload", fits),)), "tr:URL")
    assert sent == fits
    rendered = render(transfers=(Transfer("upload", "u" + "\u4f5c" * 900),))
    (sent,) = values(rendered, "tr:URL")
    assert html.unescape(sent) == "u" + "\u4f5c" * 897
    assert [note.field for note in rendered.notes] == ["FileTransfers/URL"]


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"memory_rss_kib": 2**60}, "Memory"),
        ({"user_dn": "/CN=" + "\u4f5c" * 900}, "GlobalUserName"),
        ({"transfers": (Transfer("upload", "\u4f5c" * 2000),)}, "FileTransfers/URL"),
        ({"submit": -59_011_459_201}, "TimeInstant"),
        ({"start": -62_135_596_800}, "StartTime"),
        ({"nodes": 40_000}, "NodeCount"),
        ({"client_host": "h" * 201}, "SubmitHost"),
    ],
)
def test_what_is_too_large_for_its_column_never_reaches_the_service(facts: dict[str, Any], field: str) -> None:
    rendered = render(**facts)
    assert field in [note.field for note in rendered.notes]
    message = UsageRecordFormat(View(site="S")).message([rendered.body])
    assert inspect_message(message).taken
    records = [usage_record(values) for values in read(message)]
    assert [(record.refusal, record.refusal_if_new) for record in records] == [(None, None)]


def test_a_charge_that_is_not_a_number_is_omitted() -> None:
    assert values(render(charge=1.5), "Charge") == ["1.5"]
    assert noted(render(charge=float("nan"))) == [("Charge", None)]


def test_extensions_can_be_switched_off() -> None:
    facts: dict[str, Any] = {
        "vo": "atlas", "submit": 1, "cpu_user_ms": 1, "exit_code": 1, "runtime_environments": ("R",),
        "transfers": (Transfer("upload", "u"),),
    }  # fmt: skip
    body = render(View(site="S", ur_extensions=frozenset()), **facts).body
    assert not re.search(rb"<(vo|tr|sgas|deisa|arc):", body)
    assert set(re.findall(rb"<(vo|tr|sgas|deisa|arc):", render(**facts).body)) == {
        b"vo",
        b"tr",
        b"sgas",
        b"deisa",
        b"arc",
    }


def test_service_levels() -> None:
    view = View(site="S", service_class_as_service_level=True)
    rendered = render(view, benchmarks=(Benchmark("hepspec", 17.5),), service_class="standard")
    assert values(rendered, "ServiceLevel") == ["17.5", "standard"]
    assert values(render(benchmarks=(), service_class="standard"), "ServiceLevel") == []


def test_runs_that_are_not_over_are_not_published() -> None:
    with pytest.raises(CannotRenderError, match="Status"):
        render(status="running")


def test_gpus_energy_and_extras_are_consumable_resources() -> None:
    rendered = render(gpus=2, energy_j=3.5, extras={"ru_nvcsw": 7, "note": "text", "bad": float("inf")})
    assert values(rendered, "ConsumableResource") == ["2", "3.5", "7"]
    assert noted(rendered) == [("ConsumableResource", None)]


@pytest.mark.parametrize(
    ("instant", "text"), [(-2_208_988_800, "1900-01-01T00:00:00Z"), (253_402_300_799, "9999-12-31T23:59:59Z")]
)
def test_years_1900_and_9999(instant: int, text: str) -> None:
    assert values(render(end=instant), "EndTime") == [text]


def test_names_as_the_view_wants_them() -> None:
    dn = "/O=Grid/CN=Ada"
    assert values(render(user_dn=dn), "GlobalUserName") == [dn]
    assert values(render(View(site="S", dn="withhold"), user_dn=dn), "GlobalUserName") == []
    (hashed,) = values(render(View(site="S", dn="hash", dn_key=b"k"), user_dn=dn), "GlobalUserName")
    assert "Ada" not in hashed


def test_a_vo_without_a_name_is_not_written() -> None:
    rendered = render(vo=None, vo_issuer="/CN=voms", fqans=("/Role=production",), user_dn="/CN=A")
    assert b"<vo:" not in rendered.body
    assert values(rendered, "GlobalUserName") == ["/CN=A"]


def test_there_is_one_user_identity_and_one_vo_since_a_later_one_overwrites() -> None:
    body = render(vo="atlas", fqans=("/atlas", "/cms/Role=x"), user_dn="/CN=A", local_user="u").body
    assert (body.count(b"<UserIdentity>"), body.count(b"<vo:VO ")) == (1, 1)


@pytest.mark.parametrize(
    ("facts", "element", "longest"),
    [
        ({"vo": "v", "vo_issuer": "{}"}, "vo:Issuer", 1000),
        ({"vo": "v", "fqans": ("/{}",)}, "vo:Group", 100),
        ({"vo": "v", "fqans": ("/v/Role={}",)}, "vo:Role", 100),
        ({"global_id": "{}"}, "GlobalJobId", 1000),
        ({"runtime_environments": ("{}",)}, "arc:RuntimeEnvironment", 512),
        ({"transfers": (Transfer("upload", "{}"),)}, "tr:URL", 2500),
        ({"client_host": "{}"}, "SubmitHost", 200),
    ],
)
def test_further_columns_have_their_lengths(facts: dict[str, Any], element: str, longest: int) -> None:
    def filled(length: int) -> dict[str, Any]:
        text = msgspec.json.encode(facts).decode().replace("{}", "x" * length)
        job = msgspec.json.decode(text)
        return {
            name: tuple(Transfer(**one) if isinstance(one, dict) else one for one in value)
            if isinstance(value, list)
            else value
            for name, value in job.items()
        }

    assert values(render(VIEW, **filled(longest)), element) == ["x" * longest]
    rendered = render(VIEW, **filled(longest + 1))
    assert "x" * (longest + 1) not in rendered.body.decode()
    assert len(rendered.notes) == 1


def test_a_runtime_environment_without_a_name_is_left_out() -> None:
    assert values(render(runtime_environments=("", "R", " ")), "arc:RuntimeEnvironment") == ["R"]


def test_user_and_kernel_time_have_32_bits_and_cpu_time_64() -> None:
    rendered = render(cpu_user_ms=2**31 * 1000, cpu_system_ms=1000)
    assert values(rendered, "CpuDuration") == [f"PT{2**31}S", "PT1S"]
    assert values(rendered, "sgas:UserTime") == []
    assert noted(rendered) == [("UserTime", None)]
    with pytest.raises(CannotRenderError, match="CpuDuration"):
        render(cpu_ms=2**63 * 1000)


def test_transfer_sizes_have_64_bits() -> None:
    rendered = render(transfers=(Transfer("upload", "u", 2**63), Transfer("upload", "v", 2**63 - 1)))
    assert values(rendered, "tr:Size") == [str(2**63 - 1)]


def test_durations_are_whole_seconds_without_years_and_months() -> None:
    body = render(wall_ms=400 * 86_400_000 + 1_499, cpu_ms=999_500).body.decode()
    assert set(re.findall(r">(P[^<]*)<", body)) == {f"PT{400 * 86_400 + 1}S", "PT1000S"}


def test_times_are_whole_seconds_of_utc() -> None:
    rendered = render(submit=0, start=1, end=2)
    assert [*values(rendered, "deisa:SubmitTime"), *values(rendered, "StartTime"), *values(rendered, "EndTime")] == [
        "1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z",
    ]  # fmt: skip


def test_memory_has_a_unit_of_bytes_and_a_metric_that_the_server_reads() -> None:
    body = render(memory_rss_kib=1, memory_virtual_kib=2, swap_kib=3).body.decode()
    assert set(re.findall(r'<(?:Memory|Swap) urf:storageUnit="(\w+)" urf:metric="(\w+)"', body)) == {("KB", "max")}


def test_a_message_is_ascii_and_names_its_records_job_usage_records() -> None:
    renderer = UsageRecordFormat(VIEW)
    message = renderer.message([render(name="Zo\u00eb \U0001f600").body])
    assert message.isascii()
    assert b"Zo&#235; &#128512;" in message
    assert re.findall(rb"^<(\w+)", message, re.MULTILINE) == [b"UsageRecords", b"JobUsageRecord"]


def test_attributes_are_qualified() -> None:
    body = render(memory_rss_kib=1, vo="v", hosts=(Host("wn1"),), benchmarks=(Benchmark("hepspec", 1.0),)).body.decode()
    names = re.findall(r'[ ]([\w:]+)="', body)
    assert names
    assert all(":" in name for name in names)


def test_a_corrected_record_has_the_ids_of_the_first() -> None:
    """SGAS recognises duplicates by record id and global id: a retry is harmless, a correction must not become a second
    record."""
    first, corrected = render(global_id="g", wall_ms=1), render(global_id="g", wall_ms=2)
    assert first.record_id == corrected.record_id == "ur-1"
    assert values(first, "GlobalJobId") == values(corrected, "GlobalJobId")
