"""The APEL server's reading of text messages, written again from the facts, independently of `formats.apel.text`.

`load` returns the rows that its tables would hold, or raises `RefusedError` with what the server would say.
"""

from __future__ import annotations

from datetime import UTC, datetime

JOB = [
    "Site",
    "SubmitHost",
    "MachineName",
    "Queue",
    "LocalJobId",
    "LocalUserId",
    "GlobalUserName",
    "FQAN",
    "VO",
    "VOGroup",
    "VORole",
    "WallDuration",
    "CpuDuration",
    "Processors",
    "NodeCount",
    "StartTime",
    "EndTime",
    "InfrastructureDescription",
    "InfrastructureType",
    "MemoryReal",
    "MemoryVirtual",
    "ServiceLevelType",
    "ServiceLevel",
]
WHO = ["Site", "Month", "Year", "GlobalUserName", "VO", "VOGroup", "VORole", "SubmitHost"]
REST = [
    "InfrastructureDescription",
    "NodeCount",
    "Processors",
    "EarliestEndTime",
    "LatestEndTime",
    "WallDuration",
    "CpuDuration",
    "NumberOfJobs",
]
SUMMARY = [*WHO, *REST, "InfrastructureType", "ServiceLevelType", "ServiceLevel"]
NORMALISED = [*WHO, *REST, "Infrastructure", "ServiceLevelType", "NormalisedWallDuration", "NormalisedCpuDuration"]
SYNC = ["Site", "SubmitHost", "NumberOfJobs", "Month", "Year"]
JOB_MUST = ["Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"]
SUMMARY_MUST = ["Site", "Month", "Year", "WallDuration", "CpuDuration", "NumberOfJobs"]
NORMALISED_MUST = [*SUMMARY_MUST, "NormalisedWallDuration", "NormalisedCpuDuration"]
SYNC_MUST = ["Site", "NumberOfJobs", "Month", "Year"]
TYPES = {
    "APEL-individual-job-message: v0.3": (JOB, JOB_MUST, ()),
    "APEL-individual-job-message: v0.4": (JOB, JOB_MUST, ("ServiceLevel",)),
    "APEL-summary-job-message: v0.2": (SUMMARY, SUMMARY_MUST, ()),
    "APEL-summary-job-message: v0.3": (NORMALISED, NORMALISED_MUST, ()),
    "APEL-summary-job-message: v0.4": (SUMMARY, SUMMARY_MUST, ("ServiceLevel",)),
    "APEL-normalised-summary-message: v0.4": (
        NORMALISED,
        NORMALISED_MUST,
        ("NormalisedWallDuration", "NormalisedCpuDuration"),
    ),
    "APEL-sync-message: v0.1": (SYNC, SYNC_MUST, ()),
}
INTS = {
    "Month", "Year", "NodeCount", "Processors", "WallDuration", "CpuDuration", "NumberOfJobs", "MemoryReal",
    "MemoryVirtual", "NormalisedWallDuration", "NormalisedCpuDuration", "StartTime", "EndTime", "EarliestEndTime",
    "LatestEndTime",
}  # fmt: skip
LENGTHS = {"Queue": 100, "InfrastructureDescription": 100, "InfrastructureType": 20, "Infrastructure": 20}
Row = dict[str, str | int | float | None]


class RefusedError(Exception):
    """The server refuses the message."""


def load(message: bytes) -> list[Row]:
    """The rows of a message."""
    text = message.decode("ascii").strip()
    header, *lines = text.splitlines()
    if header not in TYPES:
        raise RefusedError(f"Message type {header} not recognised.")
    known, must, dictionaries = TYPES[header]
    pieces = [piece.strip() for piece in "\n".join(lines).split("%%") if piece.strip()]
    return [_row(header, piece, known, must, dictionaries) for piece in pieces]


def _row(header: str, piece: str, known: list[str], must: list[str], dictionaries: tuple[str, ...]) -> Row:
    row: Row = {}
    for line in piece.splitlines():
        if ":" not in line:
            raise RefusedError("no key-value pair")
        key, value = (part.strip() for part in line.split(":", 1))
        if key not in known:
            raise RefusedError(f"Unknown field: {key}")
        if key in dictionaries:
            name, score = (part.strip() for part in value.strip("{}").split(":"))
            if name.lower() not in {"hepscore23", "hepspec", "si2k"}:
                raise RefusedError("No valid benchmark type found")
            if row.setdefault("ServiceLevelType", name.lower()) != name.lower():
                raise RefusedError("Mixture of benchmark types detected")
            value = score
        null = value.lower() in {"", "none", "null"}
        if null and key in must:
            raise RefusedError(f"NULL in mandatory field: {key}")
        if key in INTS:
            row[key] = None if null else int(value)
            _fits(header, key, row[key])
        elif key == "ServiceLevel":
            row[key] = None if null else float(value)
        else:
            row[key] = "None" if null else value
            if len(value) > LENGTHS.get(key, 255):
                raise RefusedError(f"Data too long for column {key}")
    for key in must:
        if key not in row:
            raise RefusedError(f"Mandatory field {key} not specified.")
    _whole_record(header, row)
    return row


def _fits(header: str, key: str, value: object) -> None:
    wide = "individual" not in header and key.endswith("Duration")
    if isinstance(value, int) and not 0 <= value <= (2**63 - 1 if wide else 2**31 - 1):
        raise RefusedError(f"Out of range value for column {key}")


def _whole_record(header: str, row: Row) -> None:
    if "individual" in header:
        if row.get("ServiceLevel") is None:
            raise RefusedError("ScalingFactorUnit custom not valid.")
        if str(row.get("ServiceLevelType")).lower() not in {"hepscore23", "hepspec", "si2k"}:
            raise RefusedError("ScalingFactorUnit not valid.")
        assert isinstance(row["StartTime"], int)
        assert isinstance(row["EndTime"], int)
        if row["EndTime"] < row["StartTime"]:
            raise RefusedError("EndTime is before StartTime.")
    elif "sync" not in header:
        needed = ["NodeCount", "Processors"] + (["ServiceLevel"] if "summary-job-message: v0.3" not in header and
                                                "normalised" not in header else [])  # fmt: skip
        for key in needed:
            if row.get(key) is None:
                raise RefusedError(f"Column {key} cannot be null")
        year, month = int(str(row["Year"])), int(str(row["Month"]))
        start = int(datetime(year, month, 1, tzinfo=UTC).timestamp())
        stop = int(datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp())
        for key in ("EarliestEndTime", "LatestEndTime"):
            end = row.get(key)
            if isinstance(end, int) and not start <= end <= stop:
                raise RefusedError(f"{key} is not within stated month.")


def key(row: Row, header: str) -> tuple[object, ...]:
    """The primary key of a row, as the server's database compares it."""
    if "individual" in header:
        names = ["Site", "LocalJobId", "EndTime"]
    elif "sync" in header:
        names = ["Site", "SubmitHost", "Month", "Year"]
    else:
        names = [
            *WHO,
            "InfrastructureType",
            "Infrastructure",
            "ServiceLevelType",
            "ServiceLevel",
            "NodeCount",
            "Processors",
        ]
    values = [row.get(name) for name in names]
    return tuple(value.lower().rstrip() if isinstance(value, str) else value for value in values)
