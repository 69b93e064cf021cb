"""Locations `s3://BUCKET/PREFIX`: their clients, kept for each process, and what obstore does not send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.store import S3Store

from tidemill.secret_places import NoSecret, read_secret
from tidemill.storage.file_names import CONTROL
from tidemill.storage.files import BadLocation, StorageUnavailable
from tidemill.storage.objects import Deletion, ObjectFiles
from tidemill.stores import StoreSettings, find_store

if TYPE_CHECKING:
    import httpx
    from obstore.store import S3Config, S3Credential

    from tidemill.world import World

SCHEME: Final = "s3"
_SIGNED_FOR: Final = timedelta(minutes=5)
_ANSWER_WITHIN: Final = timedelta(seconds=30)
_GIVE_UP_AFTER: Final = timedelta(seconds=15)
"""The longest time for which requests are sent again: a loop that lists waits so long, and then tells."""
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_GONE: Final = 404
_CHANGED: Final = 412

_Keys: TypeAlias = "tuple[str, str, str] | None"


def open_bucket(location: str, world: World) -> ObjectFiles:
    """Give the files of a bucket, or of a prefix in it. Raises `BadLocation`, and `StorageUnavailable` without keys.

    Nothing is asked of the store yet.
    """
    parts = urlsplit(location)
    prefix = unquote(parts.path).strip("/")
    if not parts.netloc or parts.query or parts.fragment or CONTROL.search(prefix):
        raise BadLocation(location, "is no s3://BUCKET/PREFIX")
    settings = _settings(location, world)
    client = _client(parts.netloc, prefix, settings, _keys(settings, world, location))
    url = f"{SCHEME}://{parts.netloc}" + (f"/{quote(prefix)}" if prefix else "")
    return ObjectFiles(url, client.store, world, client.delete_if)


def _settings(location: str, world: World) -> StoreSettings:
    """Return the settings for a location; what they leave open, variables say that other programs for S3 read too."""
    settings = find_store(world.stores, location)
    endpoint = world.environ.get("AWS_ENDPOINT_URL_S3") or world.environ.get("AWS_ENDPOINT_URL", "")
    region = world.environ.get("AWS_REGION") or world.environ.get("AWS_DEFAULT_REGION", "")
    return replace(settings, endpoint=settings.endpoint or endpoint, region=settings.region or region)


def _keys(settings: StoreSettings, world: World, location: str) -> _Keys:
    """Return id, secret and token; None where the machine's role gives them or nothing is signed.

    `StorageUnavailable` where they are missing: a file of keys may be replaced at this moment.
    """
    place = settings.credentials
    if place in {"instance", "none"}:
        return None
    if place == "env":
        given = world.environ
    else:
        try:
            lines = read_secret(world, f"the place of credentials for {settings.url}", place).splitlines()
        except NoSecret as error:
            raise StorageUnavailable(location, "", str(error)) from error
        given = {name.strip(): value for name, _, value in (line.partition("=") for line in lines)}
    key_id, secret, token = (given.get(name, "").strip() for name in _KEYS)
    if not key_id or not secret:
        raise StorageUnavailable(location, "", f"there are no keys: {_KEYS[0]} and {_KEYS[1]} are wanted in {place}")
    return key_id, secret, token


def _provider(keys: _Keys) -> Callable[[], S3Credential] | None:
    """Return what gives obstore these keys. As settings, they would be mixed with those of the variables."""
    if keys is None:
        return None
    key_id, secret, token = keys
    return lambda: {
        "access_key_id": key_id,
        "secret_access_key": secret,
        "token": token or None,
        "expires_at": None,
    }


def settings_for_hadoop(location: str, world: World) -> dict[str, str]:
    """Return the settings of Hadoop's S3A for a bucket, secrets among them. Raises `StorageUnavailable`."""
    settings = _settings(location, world)
    keys = _keys(settings, world, location)
    if keys is not None:
        provider = "TemporaryAWSCredentialsProvider" if keys[2] else "SimpleAWSCredentialsProvider"
    else:
        provider = "AnonymousAWSCredentialsProvider" if settings.credentials == "none" else ""
    given = {
        "endpoint": settings.endpoint,
        "endpoint.region": settings.region,
        "path.style.access": "true" if settings.path_style or settings.endpoint else "",
        "connection.ssl.enabled": "false" if settings.endpoint.startswith("http://") else "",
        "aws.credentials.provider": provider and f"org.apache.hadoop.fs.s3a.{provider}",
        **dict(zip(("access.key", "secret.key", "session.token"), keys or (), strict=False)),
    }
    bucket = urlsplit(location).netloc
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in given.items() if value}


class _Client:
    """A client of one prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str, settings: StoreSettings, keys: _Keys) -> None:
        config: S3Config = {
            "virtual_hosted_style_request": not (settings.path_style or settings.endpoint),
            "skip_signature": settings.credentials == "none",
        }
        if settings.endpoint:
            config["aws_endpoint_url_s3"] = settings.endpoint  # the variable of that name hides an `endpoint`
        if settings.region:
            config["region"] = settings.region
        self.store = S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={"allow_http": settings.endpoint.startswith("http://"), "timeout": _ANSWER_WITHIN},
            retry_config={"max_retries": 5, "retry_timeout": _GIVE_UP_AFTER},
            credential_provider=_provider(keys),
        )
        self._http: httpx.Client | None = None
        self._compares: bool | None = None

    def delete_if(self, name: str, etag: str, tried_on: str) -> Deletion:
        """Delete that content of a file in one step, where the store compares etags: MinIO deletes any content."""
        if self._compares is None:
            obstore.put(self.store, tried_on, b"")
            self._compares = self._ask_to_delete(tried_on, "0" * 32) is Deletion.CHANGED
            obstore.delete(self.store, tried_on)
        return self._ask_to_delete(name, etag) if self._compares else Deletion.NOT_COMPARED

    def _ask_to_delete(self, name: str, etag: str) -> Deletion:
        """Send `If-Match`, which obstore does not."""
        import httpx

        if self._http is None:
            self._http = httpx.Client(timeout=_ANSWER_WITHIN.total_seconds(), trust_env=False)
        address = obstore.sign(self.store, "DELETE", name, _SIGNED_FOR)
        try:
            answer = self._http.delete(address, headers={"If-Match": f'"{etag}"'})
        except httpx.HTTPError as error:
            raise OSError(str(error)) from error
        if answer.status_code == _CHANGED:
            return Deletion.CHANGED
        if not answer.is_success and answer.status_code != _GONE:
            raise OSError(f"status {answer.status_code}")
        return Deletion.DONE


@lru_cache(maxsize=1000)
def _client(bucket: str, prefix: str, settings: StoreSettings, keys: _Keys) -> _Client:
    """Keep clients: a new one costs 20 ms, and its first request 30 ms."""
    return _Client(bucket, prefix, settings, keys)
