"""Requests to S3 that obstore does not send: pages of names as they stand, and copies and deletions with conditions.

obstore fails a whole listing for one name such as `a//b`, and lists the object `folder/` as a file `folder` that is not
there (tried, 0.12; open as issue 341 of apache/arrow-rs-object-store). It sends no condition with a deletion or a copy.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import re
import ssl
import weakref
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import SplitResult, quote, unquote_plus, urlsplit
from xml.sax.saxutils import escape

import obstore
from obstore.store import S3Store

from tidemill.storage.objects import NO_S3, Entry, ObjectPage, Refused

if TYPE_CHECKING:
    from obstore.store import S3Config

    from tidemill.world import World

_ANSWER_WITHIN: Final = timedelta(seconds=30)
_COPY_WITHIN: Final = timedelta(minutes=10)
"""A copy of 5 GB on the server takes minutes."""
_SIGNED_FOR: Final = timedelta(minutes=10)
_RENEWED_EVERY: Final = 240
_FIRST_WAIT: Final = timedelta(milliseconds=100)
_MOST_TRIES: Final = 6
_TRY_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_GONE: Final = 404
_REFUSED: Final = 412
_MEANWHILE: Final = 409
"""Another request writes the same name."""
_UNABLE: Final = frozenset({400, 501})
"""Answers to a copy that the store cannot make: more than 5 GB, or no such request."""
_NO_BUCKET: Final = "NoSuchBucket"
_NO_FILE: Final = "NoSuchKey"
_CHANGED: Final = "PreconditionFailed"
_XML: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
_CODE: Final = re.compile(rb"<Code>([^<]*)</Code>")
_ANOTHER_ETAG: Final = "0" * 32
_MOST_DELETED: Final = 1000
_CONDITION: Final = "If-Match"

Query: TypeAlias = Mapping[str, str]


class Keys(NamedTuple):
    """Credentials; `token` is empty for a user's own."""

    key_id: str
    secret: str
    token: str


class Answer(NamedTuple):
    """The answer of a store to one request."""

    status: int
    body: bytes

    @property
    def code(self) -> str:
        """S3's name for an error; empty without one."""
        found = _CODE.search(self.body)
        return found[1].decode(errors="replace") if found else ""


class Link:
    """Connections to one bucket, kept for further requests, and what is known of its store. Used by many threads."""

    def __init__(self, address: str, bucket: str, config: S3Config, keys: Keys | None) -> None:
        parts = urlsplit(address)
        self.bucket = bucket
        self.address: SplitResult = parts
        self.region = config.get("region", "")
        self.keys = keys
        self._config = config
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close, self._idle)
        self._known: dict[str, bool] = {}
        self._asking = Lock()

    @property
    def signs_headers(self) -> bool:
        """Return whether a request may have headers of Amazon: all of them must be signed, and obstore signs none."""
        return self.keys is not None or bool(self._config.get("skip_signature"))

    def send(
        self, method: str, target: str, headers: Mapping[str, str], within: timedelta, body: bytes = b""
    ) -> Answer:
        """Send a request once, on a connection that is idle or new; OSError or HTTPException."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open()
        try:
            connection.timeout = within.total_seconds()
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            connection.request(method, target, body or None, dict(headers))
            reply = connection.getresponse()
            answer = Answer(reply.status, reply.read())
        except BaseException:
            connection.close()
            _close(self._idle)  # a store ends what has been idle for long, and all of it at once
            raise
        self._idle.append(connection)
        return answer

    def _open(self) -> http.client.HTTPConnection:
        host, port = self.address.hostname or "", self.address.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port)
        return http.client.HTTPSConnection(host, port, context=self._tls)

    def knows(self, what: str, ask: S3Requests) -> bool:
        """Return whether the store keeps a kind of condition, asked once for each process."""
        with self._asking:
            if what not in self._known:
                tries: dict[str, Callable[[], bool]] = {
                    "copy": ask.try_copy,
                    "deletion": ask.try_deletion,
                    "deletions": ask.try_deletions,
                }
                self._known[what] = tries[what]()
            return self._known[what]

    def presign(self, method: str, key: str, query: str, now: datetime) -> str:
        """Return the target of a request that obstore has signed: only obstore knows the keys of a machine's role."""
        return _presigned(self, method, key, query, int(now.timestamp()) // _RENEWED_EVERY)

    def sign_by_role(self, method: str, key: str, query: str) -> str:
        """Sign without a memory."""
        # Of a store's address obstore knows no more than that a path comes behind it. So a query stands there.
        endpoint = self.address.geturl() + (f"?{query}&x-id=" if query else "")
        config: S3Config = {**self._config, "aws_endpoint_url_s3": endpoint, "virtual_hosted_style_request": True}
        options = {"allow_http": self._tls is None}
        store = S3Store(self.bucket, config=config, client_options=options)  # type: ignore[arg-type]  # bool is allowed
        signed = urlsplit(obstore.sign(store, method, key, _SIGNED_FOR))  # type: ignore[call-overload]  # any method
        return f"{signed.path}?{signed.query}"


def _close(connections: deque[http.client.HTTPConnection]) -> None:
    with suppress(IndexError):  # other threads take from it too
        while True:
            connections.pop().close()


@lru_cache(maxsize=256)
def _presigned(link: Link, method: str, key: str, query: str, _window: int) -> str:
    """Keep what obstore has signed for some minutes: a store with a query costs 20 ms, and inboxes ask each second."""
    return link.sign_by_role(method, key, query)


@dataclass(frozen=True, slots=True)
class S3Requests:
    """See `objects.StoreRequests`: those of a prefix of a bucket; `prefix` ends with a slash, or is empty."""

    link: Link
    prefix: str
    world: World
    test_name: str
    """The beginning of the names of files on which the store may be tried."""

    def list_page(self, prefix: str, after: str, token: str, delimiter: str, most: int) -> ObjectPage:
        """See `objects.StoreRequests.list_page`."""
        query = {"list-type": "2", "encoding-type": "url", "max-keys": str(most), "prefix": self.prefix + prefix}
        if delimiter:
            query["delimiter"] = delimiter
        if token:
            query["continuation-token"] = token
        elif after:
            query["start-after"] = self.prefix + after
        answer = self._send("GET", "", query, {})
        if answer.status == _GONE:
            raise OSError("there is no such bucket")
        _require(answer)
        with self._of_s3():
            return _page(answer.body, len(self.prefix))

    def delete(self, name: str) -> None:
        """See `objects.StoreRequests.delete`."""
        _require(self._send("DELETE", name, {}, {}), _GONE)

    def delete_if(self, name: str, etag: str) -> Refused | None:
        """See `objects.StoreRequests.delete_if`."""
        if not self.link.knows("deletion", self):
            return Refused.UNABLE
        return self._delete_if(name, etag)

    def _delete_if(self, name: str, etag: str) -> Refused | None:
        answer = self._send("DELETE", name, {}, {_CONDITION: f'"{etag}"'})
        if answer.status == _REFUSED:
            return Refused.CONDITION
        _require(answer, _GONE)
        return None

    def delete_those(self, contents: Sequence[tuple[str, str]]) -> list[Refused | None] | Refused:
        """See `objects.StoreRequests.delete_those`."""
        if not self.link.signs_headers or not self.link.knows("deletions", self):
            return Refused.UNABLE
        places = range(0, len(contents), _MOST_DELETED)
        return [one for first in places for one in self._delete_those(contents[first : first + _MOST_DELETED])]

    def _delete_those(self, contents: Sequence[tuple[str, str]]) -> list[Refused | None]:
        objects = "".join(
            f"<Object><Key>{escape(self.prefix + name)}</Key><ETag>&quot;{escape(etag)}&quot;</ETag></Object>"
            for name, etag in contents
        )
        body = f'<Delete xmlns="{_XML}"><Quiet>true</Quiet>{objects}</Delete>'.encode()
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        answer = self._send("POST", "", {"delete": ""}, {"Content-MD5": digest}, body=body)
        _require(answer)
        refused: dict[str, Refused | None] = {}
        with self._of_s3():
            result = _document(answer.body, "DeleteResult")
        for one in result.iterfind("{*}Error"):
            code = one.findtext("{*}Code") or ""
            if code not in {_NO_FILE, _CHANGED}:
                raise OSError(code)
            refused[one.findtext("{*}Key") or ""] = None if code == _NO_FILE else Refused.CONDITION
        return [refused.get(self.prefix + name) for name, _ in contents]

    def copy_if(self, source: S3Requests, name: str, etag: str, target: str) -> Refused | None:
        """See `objects.StoreRequests.copy_if`."""
        reached = self.link.signs_headers and _reaches(self.link, source.link)
        if not reached or not self.link.knows("copy", self):
            return Refused.UNABLE
        return self._copy_if(source, name, etag, target)

    def _copy_if(self, source: S3Requests, name: str, etag: str, target: str) -> Refused | None:
        headers = {
            "x-amz-copy-source": quote(f"/{source.link.bucket}/{source.prefix}{name}"),
            "x-amz-copy-source-if-match": f'"{etag}"',
            "If-None-Match": "*",
        }
        answer = self._send("PUT", target, {}, headers, _COPY_WITHIN)
        if answer.status in {_REFUSED, _MEANWHILE, _GONE}:
            return Refused.CONDITION
        if answer.status in _UNABLE:
            return Refused.UNABLE
        _require(answer)
        if answer.code:  # a copy that broke off has the status of one that did not
            raise OSError(answer.code)
        return None

    def try_deletion(self) -> bool:
        """Tell whether the store compares etags when it deletes: MinIO deletes any content."""
        with self._file_to_try() as name:
            return self._delete_if(name, _ANOTHER_ETAG) is Refused.CONDITION

    def try_deletions(self) -> bool:
        """Tell whether the store compares etags when it deletes many files: moto deletes any content."""
        with self._file_to_try() as name:
            return self._delete_those([(name, _ANOTHER_ETAG)]) == [Refused.CONDITION]

    def try_copy(self) -> bool:
        """Tell whether the store keeps both conditions of a copy: MinIO and moto copy in any case."""
        with self._file_to_try() as name, self._file_to_try() as other:
            etag = next(iter(self.list_page(name, "", "", "", 1).entries)).etag
            tries = (self._copy_if(self, name, _ANOTHER_ETAG, f"{other}-copy"), self._copy_if(self, name, etag, other))
            self.delete(f"{other}-copy")
        return tries == (Refused.CONDITION, Refused.CONDITION)

    @contextmanager
    def _file_to_try(self) -> Iterator[str]:
        name = f"{self.test_name}-{self.world.new_id('try')}"  # other processes try the store too
        _require(self._send("PUT", name, {}, {}))
        try:
            yield name
        finally:
            self.delete(name)

    @contextmanager
    def _of_s3(self) -> Iterator[None]:
        """Say that an answer cannot be read by an OSError with the address that gave the answer."""
        try:
            yield
        except (ET.ParseError, ValueError) as error:
            address = self.link.address
            server = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
            raise OSError(f"the answer of {server} is {NO_S3}") from error

    def _send(
        self,
        method: str,
        name: str,
        query: Query,
        headers: Mapping[str, str],
        within: timedelta = _ANSWER_WITHIN,
        body: bytes = b"",
    ) -> Answer:
        """Send a request, and once more where the store does not answer or asks for that; OSError.

        Without a name, the request is about the bucket. Each of our requests may be sent twice.
        """
        wait = _FIRST_WAIT
        for left in reversed(range(_MOST_TRIES)):
            try:
                answer = self.link.send(method, *self._sign(method, name, query, headers, body), within, body)
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise OSError(f"it does not answer: {error}") from error
            else:
                if answer.code == _NO_BUCKET:
                    raise OSError("there is no such bucket")
                if not left or answer.status not in _TRY_AGAIN:
                    return answer
            self.world.clock.sleep(wait)
            wait *= 2
        raise AssertionError

    def _sign(
        self, method: str, name: str, query: Query, headers: Mapping[str, str], body: bytes
    ) -> tuple[str, Mapping[str, str]]:
        """Return the target and all headers of a request."""
        key = self.prefix + name if name else ""
        link, now = self.link, self.world.clock.now()
        text = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(query.items()))
        if not link.signs_headers:
            return link.presign(method, key, text, now), headers
        path = quote(f"{link.address.path}/{key}", safe="/-_.~")
        address = link.address._replace(path=path, query=text)
        target = f"{path}?{text}" if text else path
        return target, headers if link.keys is None else sign(
            link.keys, link.region, method, address, headers, now, body
        )


def sign(
    keys: Keys,
    region: str,
    method: str,
    address: SplitResult,
    headers: Mapping[str, str],
    now: datetime,
    body: bytes = b"",
) -> dict[str, str]:
    """Return the headers of a request, signed by Amazon's version 4. Pure."""
    at, digest = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    signed = {**headers, "x-amz-content-sha256": digest, "x-amz-date": at}
    if keys.token:
        signed["x-amz-security-token"] = keys.token
    lines = sorted((name.lower(), value.strip()) for name, value in {**signed, "host": address.netloc}.items())
    names = ";".join(name for name, _ in lines)
    request = "\n".join(
        [method, address.path, address.query, *(f"{name}:{value}" for name, value in lines), "", names, digest]
    )
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**signed, "Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _reaches(link: Link, other: Link) -> bool:
    """Tell whether both buckets are of one store, for the same credentials."""
    return (link.keys, link.region, _store_of(link)) == (other.keys, other.region, _store_of(other))


def _store_of(link: Link) -> str:
    return (link.address.netloc + link.address.path).replace(link.bucket, "", 1)


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")


def _require(answer: Answer, *also: int) -> None:
    if answer.status not in {200, 204, *also}:
        raise OSError(f"status {answer.status} {answer.code}".strip())


def _document(body: bytes, tag: str) -> ET.Element:
    """Parse an answer of that tag. ParseError or ValueError for another answer: a page of HTML may be XML, too."""
    root = ET.fromstring(body)  # noqa: S314  # expat bounds what entities grow to
    if root.tag.rpartition("}")[2] != tag:
        raise ValueError(root.tag)
    return root


def _page(body: bytes, skipped: int) -> ObjectPage:
    """Read a page of a listing, of whose names `skipped` characters are left out."""
    root = _document(body, "ListBucketResult")
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    is_encoded = root.findtext(f"{space}EncodingType") == "url"

    def name_in(element: ET.Element, tag: str) -> str:
        text = element.findtext(f"{space}{tag}") or ""
        return (unquote_plus(text) if is_encoded else text)[skipped:]

    entries = tuple(
        Entry(
            name_in(one, "Key"),
            int(one.findtext(f"{space}Size") or 0),
            datetime.fromisoformat(one.findtext(f"{space}LastModified") or ""),
            (one.findtext(f"{space}ETag") or "").strip('"'),
        )
        for one in root.iterfind(f"{space}Contents")
    )
    folders = tuple(name_in(one, "Prefix") for one in root.iterfind(f"{space}CommonPrefixes"))
    more = root.findtext(f"{space}IsTruncated") == "true"
    return ObjectPage(entries, folders, (root.findtext(f"{space}NextContinuationToken") or "") if more else "")
