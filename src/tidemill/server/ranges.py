"""Ranges: a part of an answer by its bytes (RFC 9110, section 14), for callers that read on where they stopped."""

from __future__ import annotations

import re
from typing import Final

from fastapi import Response

_ONE: Final = re.compile(r"bytes=(?P<begin>\d{1,18})?-(?P<last>\d{1,18})?")


def cut_out(content: bytes, wanted: str, media_type: str) -> Response:
    """Return the part of `content` that the header `Range: wanted` asks for: 206, or 416 for a part behind its end.

    A range that cannot be read, and a list of several, get the whole content, as the RFC has it.
    """
    found = _ONE.fullmatch(wanted.strip())
    if found is None or found.group() == "bytes=-":
        return Response(content, media_type=media_type)
    size = len(content)
    begin = size - int(found["last"]) if found["begin"] is None else int(found["begin"])
    end = size if found["begin"] is None or found["last"] is None else int(found["last"]) + 1
    begin, end = max(begin, 0), min(end, size)
    if begin >= size or begin >= end:
        return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
    headers = {"content-range": f"bytes {begin}-{end - 1}/{size}"}
    return Response(content[begin:end], 206, headers=headers, media_type=media_type)
