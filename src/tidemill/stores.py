"""Settings of object stores: the tables `[stores.NAME]`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The way to the locations below a URL. Holds no secret: `credentials` says where the secrets are."""

    name: str = ""
    url: str = ""
    """The URL of a bucket, or of a folder in it, as `s3://landing`; empty for all locations."""
    endpoint: str = ""
    """The address of a store that speaks like S3; empty for that of Amazon."""
    region: str = ""
    path_style: bool = False
    """Name the bucket in the path of each request, and not in the host's name."""
    credentials: str = "env"
    """`env`: variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN. `file:PATH`: a file with the same
    names in lines NAME=VALUE. `instance`: the role of the machine. `none`: requests are not signed."""

    def reaches(self, location: str) -> bool:
        """Return whether these settings hold for a location."""
        url, wanted = unquote(self.url).rstrip("/"), unquote(location)
        return not url or wanted == url or wanted.startswith(f"{url}/")


def find_store(stores: Iterable[StoreSettings], location: str) -> StoreSettings:
    """Return the settings with the longest URL that leads to a location; those of a store without a table else."""
    return max((one for one in stores if one.reaches(location)), key=lambda one: len(one.url), default=StoreSettings())


def has_login(location: str) -> bool:
    """Return whether the URL of a bucket has a user or a key in it. A key may have slashes, as `KEY:SE/CRET@bucket`."""
    bucket = location.removeprefix("s3://").partition("/")[0]
    return location.startswith("s3://") and ("@" in bucket or ":" in bucket)
