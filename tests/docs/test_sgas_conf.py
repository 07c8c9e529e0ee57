"""The query for SGAS' own configuration, once for each version of LUTS."""

from __future__ import annotations

from pathlib import Path


def test_the_released_luts_gets_the_same_query_without_the_key_that_it_does_not_know(root: Path) -> None:
    folder = root / "docs" / "reference" / "targets"
    master, released = ((folder / name).read_text(encoding="utf-8") for name in ("sgas.conf", "sgas-released.conf"))
    kept = [line for line in master.splitlines() if not line.startswith("authz_params=")]
    assert released.splitlines() == kept
    assert len(kept) == len(master.splitlines()) - 1
