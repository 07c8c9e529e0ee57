"""The record of a run: what others rely on."""

from __future__ import annotations

from typing import Final

from formats.job import Job

FIELDS: Final = """
    record_id system status slave user_dn token_subject token_issuer vo vo_issuer fqans cluster queue endpoint_url
    endpoint_type nodes cores slots infrastructure lrms middleware middleware_version benchmarks hosts local_user
    local_group project account department global_id local_id name run array_id array_task parallel_environment
    client_host gpus service_class system_software runtime_environments submit eligible lrms_submit start end
    execution_start execution_end events wall_ms cpu_ms cpu_user_ms cpu_system_ms memory_rss_kib memory_virtual_kib
    swap_kib scratch_bytes energy_j stage_in_ms stage_out_ms stage_in_bytes stage_out_bytes transfers charge
    process_ids exit_code exit_signal end_reason extras site
"""


def test_fields_are_only_added_at_the_end() -> None:
    """Sources that read millions of runs give them by position."""
    known = tuple(FIELDS.split())
    assert Job.__struct_fields__[: len(known)] == known
