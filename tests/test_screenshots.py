"""The pictures of pages: those that `make screenshots` takes, small, and all of one size."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np

from tools.screenshots import HEIGHT, IMAGES, MOST_BYTES, PICTURES, WIDTH
from tools.small_png import write_png


def test_the_pictures_are_those_that_the_target_takes():
    """A picture made by hand shows what no reader can see again."""
    assert {one.name for one in IMAGES.glob("*.png")} == {f"{one.name}.png" for one in PICTURES}
    assert len(PICTURES) == 10
    for one in IMAGES.glob("*.png"):
        content = one.read_bytes()
        assert struct.unpack(">II", content[16:24]) == (WIDTH, HEIGHT), one.name
        assert len(content) <= MOST_BYTES, one.name


def test_readme_and_docs_show_pictures_that_are_there():
    """A link to a picture that was renamed is a hole in the page."""
    root = IMAGES.parents[1]
    for page in (root / "README.md", root / "docs" / "server.md"):
        shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        assert shown, page
        assert [name for name in shown if not (page.parent / name).exists()] == []


def test_a_picture_of_few_colours_is_kept_as_it_is():
    """Each pixel comes back: the palette has all colours."""
    pixels = np.array([[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255], [255, 0, 0, 255]], dtype=np.uint8)
    png = write_png(pixels.tobytes(), 2, 2)
    palette = png[png.index(b"PLTE") + 4 :][:9]
    begin = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[begin - 4 : begin])
    rows = zlib.decompress(png[begin + 4 : begin + 4 + length])

    assert png.startswith(b"\x89PNG")
    colours = [tuple(palette[3 * place : 3 * place + 3]) for place in (rows[1], rows[2], rows[4], rows[5])]
    assert colours == [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 0, 0)]


def test_rare_colours_become_the_nearest_of_the_frequent_ones():
    """Smooth letters have thousands of colours; a palette has 256."""
    frequent = np.repeat(np.arange(256, dtype=np.uint8), 2)
    grey = np.stack([frequent] * 3 + [np.full(512, 255, np.uint8)], axis=1)
    rare = np.array([[10, 10, 11, 255], [200, 201, 200, 255]], dtype=np.uint8)
    png = write_png(np.concatenate([grey, rare]).tobytes(), 514, 1)
    begin = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[begin - 4 : begin])
    row = zlib.decompress(png[begin + 4 : begin + 4 + length])
    palette = png[png.index(b"PLTE") + 4 :]

    assert palette[3 * row[-2]] == 10
    assert palette[3 * row[-1]] == 200
