"""Pictures of pages as small files: at most 256 colours, and the strongest compression."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

_MOST: Final = 256


def write_png(rgba: bytes, width: int, height: int) -> bytes:
    """Return a PNG with a palette of the most frequent colours. Other colours become the nearest of these."""
    pixels = np.frombuffer(rgba, dtype=np.uint8).reshape(-1, 4)[:, :3]
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    colours, place, number = np.unique(packed, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(number)[::-1][:_MOST])
    palette = _split(colours[kept])
    distance = ((_split(colours)[:, None, :].astype(np.int32) - palette[None, :, :].astype(np.int32)) ** 2).sum(axis=2)
    indexes = distance.argmin(axis=1).astype(np.uint8)[place].reshape(height, width)
    rows = np.hstack([np.zeros((height, 1), dtype=np.uint8), indexes])
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _split(colours: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    """Return red, green and blue of each colour."""
    return np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
