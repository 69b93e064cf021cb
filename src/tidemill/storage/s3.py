"""Locations `s3://BUCKET/PREFIX`: their clients, kept for each process, and what obstore does not send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote, urlsplit

from obstore.store import S3Store

from tidemill.secret_places import NoSecret, read_secret
from tidemill.storage.file_names import CONTROL
from tidemill.storage.files import BadLocation, StorageUnavailable
from tidemill.storage.objects import ObjectFiles
from tidemill.storage.s3_requests import Keys, Link, S3Requests
from tidemill.stores import StoreSettings, find_store, has_login

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential

    from tidemill.world import World

SCHEME: Final = "s3"
_TEST: Final = ".tidemill-test"
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_USUAL_REGION: Final = "us-east-1"
_ANSWER_WITHIN: Final = timedelta(seconds=30)
_GIVE_UP_AFTER: Final = timedelta(seconds=15)
"""The longest time for which requests are sent again: a loop that lists waits so long, and then tells."""
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def open_bucket(location: str, world: World) -> ObjectFiles:
    """Give the files of a bucket, or of a prefix in it. Raises `BadLocation`, and `StorageUnavailable` without keys.

    Nothing is asked of the store yet.
    """
    if has_login(location):
        _, at, shown = location.rpartition("@")
        why = "has a key in it: name the bucket alone, and the place of its keys in a table [stores.NAME]"
        raise BadLocation(f"{SCHEME}://*****{at}{shown if at else ''}", why)
    parts = urlsplit(location)
    prefix = unquote(parts.path).strip("/")
    if not parts.netloc or parts.query or parts.fragment or CONTROL.search(prefix):
        raise BadLocation(location, "is no s3://BUCKET/PREFIX")
    settings = _settings(location, world)
    client = _client(parts.netloc, prefix, settings, _keys(settings, world, location))
    url = f"{SCHEME}://{parts.netloc}" + (f"/{quote(prefix)}" if prefix else "")
    requests = S3Requests(client.link, f"{prefix}/" if prefix else "", world, _TEST)
    return ObjectFiles(url, client.store, world, requests)


def _settings(location: str, world: World) -> StoreSettings:
    """Return the settings for a location; what they leave open, variables say that other programs for S3 read too."""
    settings = find_store(world.stores, location)
    endpoint = world.environ.get("AWS_ENDPOINT_URL_S3") or world.environ.get("AWS_ENDPOINT_URL", "")
    region = settings.region or next(filter(None, map(world.environ.get, _REGIONS)), _USUAL_REGION)
    return replace(settings, endpoint=settings.endpoint or endpoint, region=region)


def _keys(settings: StoreSettings, world: World, location: str) -> Keys | None:
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
    return Keys(key_id, secret, token)


def _provider(keys: Keys | None) -> Callable[[], S3Credential] | None:
    """Return what gives obstore these keys. As settings, they would be mixed with those of the variables."""
    if keys is None:
        return None
    return lambda: {
        "access_key_id": keys.key_id,
        "secret_access_key": keys.secret,
        "token": keys.token or None,
        "expires_at": None,
    }


def settings_for_hadoop(location: str, world: World) -> dict[str, str]:
    """Return the settings of Hadoop's S3A for a bucket, secrets among them. Raises `StorageUnavailable`."""
    settings = _settings(location, world)
    keys = _keys(settings, world, location)
    if keys is not None:
        provider = "TemporaryAWSCredentialsProvider" if keys.token else "SimpleAWSCredentialsProvider"
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
    """A client of one prefix of a bucket: by obstore, and by requests of ours."""

    def __init__(self, bucket: str, prefix: str, settings: StoreSettings, keys: Keys | None) -> None:
        config: S3Config = {
            "virtual_hosted_style_request": not (settings.path_style or settings.endpoint),
            "skip_signature": settings.credentials == "none",
            "region": settings.region,
        }
        if settings.endpoint:
            config["aws_endpoint_url_s3"] = settings.endpoint  # the variable of that name hides an `endpoint`
        self.store = S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={"allow_http": settings.endpoint.startswith("http://"), "timeout": _ANSWER_WITHIN},
            retry_config={"max_retries": 5, "retry_timeout": _GIVE_UP_AFTER},
            credential_provider=_provider(keys),
        )
        self.link = Link(_address(bucket, settings), bucket, config, keys)


def _address(bucket: str, settings: StoreSettings) -> str:
    """Return the address of a bucket, as obstore makes it."""
    if settings.endpoint:
        return f"{settings.endpoint.rstrip('/')}/{bucket}"
    host = f"s3.{settings.region}.amazonaws.com"
    return f"https://{host}/{bucket}" if settings.path_style else f"https://{bucket}.{host}"


@lru_cache(maxsize=1000)
def _client(bucket: str, prefix: str, settings: StoreSettings, keys: Keys | None) -> _Client:
    """Keep clients: a new one costs 20 ms, and its first request 30 ms."""
    return _Client(bucket, prefix, settings, keys)
