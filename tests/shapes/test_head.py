"""The first rows of a file, for people: what cannot be read is named."""

from __future__ import annotations

import gzip

import pytest

from tidemill.shapes.formats import FileFormat
from tidemill.shapes.head import UnreadableRows, read_head
from tidemill.storage.locations import open_files
from tidemill.world import World

DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000

UNREADABLE = [
    (FileFormat.JSON, "file.json", DEEP, "it is nested too deep"),
    (FileFormat.JSON, "file.json", b'{"a": 1}\n{torn\n', "Expecting property name"),
    (FileFormat.JSON, "file.json", b"[1]\n", "a row is no JSON object"),
    (FileFormat.JSON, "file.json.gz", b"no gzip", "incorrect header check"),
    (FileFormat.JSON, "file.json.gz", gzip.compress(DEEP)[:-20], "nested too deep|Expecting"),
    (FileFormat.CSV, "file.csv", b"a,b\n" + b"x" * 200_000 + b",1\n", "field larger than field limit"),
    (FileFormat.PARQUET, "file.parquet", b"PAR1 nothing of the kind PAR1", "footer|file size"),
    (FileFormat.ORC, "file.orc", b"ORC nothing of the kind ORC", "ORC|orc|Invalid|footer"),
]


@pytest.mark.parametrize(("file_format", "name", "content", "why"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, file_format, name, content, why):
    """A person asked for some rows, and got a traceback of the parser."""
    files = open_files(tmp_path, World())
    files.put(name, content)

    with pytest.raises(UnreadableRows, match=why) as caught:
        list(read_head(files, name, file_format, 5))

    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_before_the_damage_are_read(tmp_path):
    """Only what was asked for has to be sound."""
    files = open_files(tmp_path, World())
    files.put("file.json", b'{"a": 1}\n{torn\n')

    assert list(read_head(files, "file.json", FileFormat.JSON, 1)) == [{"a": 1}]
