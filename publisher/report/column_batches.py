"""Frames as Arrow record batches, with null where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from publisher.report.archive import CORE_NUMBERS, JOB_COLUMNS, TEXT_COLUMNS, text_of
from publisher.report.frame import UNKNOWN, Coding, Frame

_encode = msgspec.json.Encoder().encode


def batch_of(frame: Frame, codings: Mapping[str, Coding], schema: Any) -> Any:
    """A record batch with the columns of a schema, all of which the frame has."""
    texts = frozenset(TEXT_COLUMNS)
    jobs = _names_of_jobs(frame)
    arrays = []
    for name in schema.names:
        if name in texts:
            arrays.append(_texts(name, codings[name], frame.codes[name]))
        elif name in jobs:
            arrays.append(pa.array(list(map(_unicode, jobs[name])), pa.string()))
        elif name in {"events", CORE_NUMBERS}:
            encoded = [_encode(some).decode() if some else None for some in frame.objects[name]]
            arrays.append(pa.array(encoded, pa.string()))
        else:
            values = frame.numbers[name]
            arrays.append(pa.array(values, schema.field(name).type, mask=values == UNKNOWN))
    return pa.record_batch(arrays, schema=schema)


def _names_of_jobs(frame: Frame) -> dict[str, tuple[str | None, ...]]:
    if not frame.rows:
        return dict.fromkeys(JOB_COLUMNS, ())
    local_ids, names, global_ids, array_ids, _tasks, _clusters, second_names = zip(*frame.objects["job"], strict=True)
    return dict(zip(JOB_COLUMNS, (local_ids, names, global_ids, array_ids, second_names), strict=True))


def _texts(name: str, coding: Coding, codes: Any) -> Any:
    found, places = np.unique(codes, return_inverse=True)
    texts = [text_of(name, coding.raw[code], coding.values[code]) for code in found.tolist()]
    indices = places.reshape(-1).astype(np.int32)
    silent = np.array([text is None for text in texts], np.bool_)
    words = pa.array([_unicode(text) or "" for text in texts], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=silent[indices]), words)


def _unicode(text: str | None) -> str | None:
    """Text for Parquet: bytes of the source that are not UTF-8 become escapes."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
