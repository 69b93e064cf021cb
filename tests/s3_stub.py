"""A small S3 server of the tests' own: it counts requests, answers late or never if asked to, and knows conditions.

moto sorts the whole bucket for each page and ignores conditions on copies. This stub keeps its keys sorted, so a bucket
may have a hundred thousand objects. It checks no signatures.
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import json
import random
import sys
import xml.etree.ElementTree as ET
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import StrEnum
from typing import TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import httpx

from tests.s3_server import S3Server, running_process
from tests.yardstick import patience

Answer: TypeAlias = "tuple[int, dict[str, str], bytes]"

CONTENT = b"1\n"
"""The content of each object that `fill` makes."""


class Trouble(StrEnum):
    """A way in which a request breaks: the client mostly cannot tell whether the server has acted."""

    UNHEARD = "the connection ends before the server acts"
    UNANSWERED = "the server acts, and the connection ends"
    CUT = "the server acts, and the connection ends in the middle of the answer"
    REFUSED = "the server does not act, and answers 503"
    DOUBTFUL = "the server acts, and answers 500"
    LATE = "the server acts, and answers late"


LATE_BY = 0.3
"""Seconds."""


@dataclass(frozen=True)
class S3Stub(S3Server):
    """The stub as tests see it."""

    def read_counts(self) -> dict[str, int]:
        """Return the number of requests by kind since the last call."""
        answer = httpx.post(f"{self.url}/_counts", timeout=patience(20)).raise_for_status()
        return dict(answer.json())

    def fill(self, bucket: str, names: str, count: int) -> None:
        """Make objects named by `names`, with the number in the place of `{}`."""
        form = {"bucket": bucket, "names": names, "count": count}
        httpx.post(f"{self.url}/_fill", json=form, timeout=patience(60)).raise_for_status()

    def put_raw(self, bucket: str, key: str, content: bytes) -> None:
        """Make an object, whatever its name is."""
        form = {"bucket": bucket, "key": key, "content": content.decode()}
        httpx.post(f"{self.url}/_put", json=form, timeout=patience(20)).raise_for_status()

    def fail_next(self, failures: list[str]) -> None:
        """Answer the next requests so, one after the other: a status, `hang up`, or with status 200 `say TEXT`."""
        httpx.post(f"{self.url}/_fail", json=failures, timeout=patience(20)).raise_for_status()

    def refuse(self, bucket: str, key: str, code: str) -> None:
        """Answer each later HEAD and GET of an object by status 403 and this code; without a code, give it again."""
        form = {"bucket": bucket, "key": key, "code": code}
        httpx.post(f"{self.url}/_refuse", json=form, timeout=patience(20)).raise_for_status()

    def storm(self, seed: int, share: float) -> None:
        """Break this share of the later requests, each in one of the ways of `Trouble`; with 0 the storm is over."""
        form = {"seed": seed, "share": share}
        httpx.post(f"{self.url}/_storm", json=form, timeout=patience(20)).raise_for_status()

    def read_troubles(self) -> dict[str, int]:
        """Return the number of requests that a storm has broken, by the way."""
        answer = httpx.get(f"{self.url}/_troubles", timeout=patience(20)).raise_for_status()
        return dict(answer.json())

    def hang_up(self) -> None:
        """Close all connections but that of this request."""
        httpx.post(f"{self.url}/_hang_up", timeout=patience(20)).raise_for_status()

    def answer_after(self, seconds: float) -> None:
        """Answer each later request after that time."""
        httpx.post(f"{self.url}/_late", json=seconds, timeout=patience(20)).raise_for_status()


@contextmanager
def running_s3_stub() -> Iterator[S3Stub]:
    """Start a stub on a free port; end it after the block."""
    with running_process("tests.s3_stub") as url:
        yield S3Stub(url)


@dataclass
class _Bucket:
    keys: list[str] = field(default_factory=list)
    objects: dict[str, tuple[bytes, str, datetime]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, content: bytes) -> str:
        if key not in self.objects:
            bisect.insort(self.keys, key)
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        self.objects[key] = (content, etag, datetime.now(UTC))
        return etag

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect.bisect_left(self.keys, key)]

    def change(self, what: str, form: Mapping[str, str]) -> None:
        """Do what a test asks for."""
        if what == "_put":
            self.put(form["key"], form["content"].encode())
        elif what == "_refuse":
            self.refused[form["key"]] = form["code"]
        else:
            for number in range(int(form["count"])):
                self.put(form["names"].format(number), CONTENT)


class _Stub:
    """The server's state, and its answers."""

    def __init__(self) -> None:
        self.buckets: dict[str, _Bucket] = {}
        self.counts: Counter[str] = Counter()
        self.failures: deque[str] = deque()
        self.late = 0.0
        self.share = 0.0
        self.dice = random.Random()
        self.troubles: Counter[str] = Counter()
        self.idle: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while line := await reader.readline():
                method, target, _ = line.decode().split()
                headers: dict[str, str] = {}
                while (header := await reader.readline()).strip():
                    name, _, value = header.decode().partition(":")
                    headers[name.strip().lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer, goes_on = await self._answer_or_break(method, target, headers, body)
                writer.write(answer)
                await writer.drain()
                if not goes_on:
                    break
                self.idle.add(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.idle.discard(writer)
            writer.close()

    async def _answer_or_break(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[bytes, bool]:
        """Return the bytes of an answer, and whether the connection goes on behind them."""
        control = target.startswith("/_")
        failure = self.failures.popleft() if self.failures and not control else ""
        trouble = None if control else self._trouble()
        if failure == "hang up" or trouble is Trouble.UNHEARD:
            return b"", False
        answer = _error(503, "SlowDown")
        if failure.startswith("say "):
            answer = 200, {"Content-Type": "text/html"}, failure[4:].encode()
        elif failure:
            answer = _error(int(failure[:3]), failure[4:] or "SlowDown")
        elif trouble is not Trouble.REFUSED:
            answer = self.answer(method, target, headers, body)
        if trouble is Trouble.UNANSWERED:
            return b"", False
        if trouble is Trouble.DOUBTFUL:
            answer = _error(500, "InternalError")
        late = LATE_BY if trouble is Trouble.LATE else 0 if control else self.late
        if late:
            await asyncio.sleep(late)
        status, extra, content = answer
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in extra.items())]
        if "Content-Length" not in extra:
            lines.append(f"Content-Length: {len(content)}")
        told = "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else content)
        return (told[: len(told) * 2 // 3], False) if trouble is Trouble.CUT else (told, True)

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer one request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        name, _, key = unquote(parts.path[1:]).partition("/")
        if name.startswith("_"):
            return self._control(name, body)
        if not name:
            return 200, {}, b""
        if method == "PUT" and not key:
            self.buckets[name] = _Bucket()
            return 200, {}, b""
        kind = _kind(method, key, headers)
        self.counts[kind] += 1
        bucket = self.buckets.get(name)
        if bucket is None:
            return _error(404, "NoSuchBucket")
        answers: dict[str, Callable[[], Answer]] = {
            "LIST": lambda: _list(bucket, query),
            "DELETE MANY": lambda: _delete_many(bucket, body),
            "GET": lambda: _get(bucket, key, headers),
            "HEAD": lambda: _get(bucket, key, headers),
            "PUT": lambda: _put(bucket, key, headers, body),
            "COPY": lambda: self._copy(bucket, key, headers),
            "DELETE": lambda: _delete(bucket, key, headers),
        }
        return answers[kind]()

    def _trouble(self) -> Trouble | None:
        if self.dice.random() >= self.share:
            return None
        trouble = self.dice.choice(list(Trouble))
        self.troubles[trouble] += 1
        return trouble

    def _control(self, what: str, body: bytes) -> Answer:
        counts = dict(self.counts)
        if what == "_late":
            self.late = json.loads(body)
        elif what == "_fail":
            self.failures.extend(json.loads(body))
        elif what == "_storm":
            form = json.loads(body)
            self.dice, self.share = random.Random(form["seed"]), form["share"]
        elif what == "_troubles":
            counts = dict(self.troubles)
        elif what == "_hang_up":
            for writer in self.idle:
                writer.close()
        elif what in {"_put", "_refuse", "_fill"}:
            form = json.loads(body)
            self.buckets[form.pop("bucket")].change(what, form)
        else:
            self.counts.clear()
        return 200, {}, json.dumps(counts).encode()

    def _copy(self, bucket: _Bucket, key: str, headers: Mapping[str, str]) -> Answer:
        source, _, name = unquote(headers["x-amz-copy-source"]).removeprefix("/").partition("/")
        if source not in self.buckets:
            return _error(404, "NoSuchBucket")
        found = self.buckets[source].objects.get(name)
        if found is None:
            return _error(404, "NoSuchKey")
        if headers.get("x-amz-copy-source-if-match", found[1]) != found[1]:
            return _error(412, "PreconditionFailed")
        if headers.get("if-none-match") == "*" and key in bucket.objects:
            return _error(412, "PreconditionFailed")
        etag = bucket.put(key, found[0])
        return 200, {}, f"<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>".encode()


def _kind(method: str, key: str, headers: Mapping[str, str]) -> str:
    if not key:
        return {"GET": "LIST", "POST": "DELETE MANY"}[method]
    return "COPY" if "x-amz-copy-source" in headers else method


def _get(bucket: _Bucket, key: str, headers: Mapping[str, str]) -> Answer:
    if code := bucket.refused.get(key):
        return _error(403, code)
    found = bucket.objects.get(key)
    if found is None:
        return _error(404, "NoSuchKey")
    content, etag, at = found
    if headers.get("if-match", etag) != etag:
        return _error(412, "PreconditionFailed")
    known = {"ETag": etag, "Last-Modified": format_datetime(at, usegmt=True)}
    if "range" not in headers:
        return 200, {**known, "Content-Length": str(len(content))}, content
    first, _, last = headers["range"].removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last or len(content)) + 1, len(content))
    if start >= len(content):
        return _error(416, "InvalidRange")
    return 206, {**known, "Content-Range": f"bytes {start}-{end - 1}/{len(content)}"}, content[start:end]


def _put(bucket: _Bucket, key: str, headers: Mapping[str, str], body: bytes) -> Answer:
    if headers.get("if-none-match") == "*" and key in bucket.objects:
        return _error(412, "PreconditionFailed")
    return 200, {"ETag": bucket.put(key, body)}, b""


def _delete(bucket: _Bucket, key: str, headers: Mapping[str, str]) -> Answer:
    if "if-match" in headers:
        if key not in bucket.objects:
            return _error(404, "NoSuchKey")
        if headers["if-match"] != bucket.objects[key][1]:
            return _error(412, "PreconditionFailed")
    bucket.delete(key)
    return 204, {}, b""


def _delete_many(bucket: _Bucket, body: bytes) -> Answer:
    results = []
    for one in ET.fromstring(body).iterfind("{*}Object"):
        key, etag = one.findtext("{*}Key") or "", one.findtext("{*}ETag")
        status, _, answer = _delete(bucket, key, {} if etag is None else {"if-match": etag})
        code = ET.fromstring(answer).findtext("Code") if status != 204 else ""
        result = f"<Key>{escape(key)}</Key>" + (f"<Code>{code}</Code>" if code else "")
        results.append(f"<Error>{result}</Error>" if code else f"<Deleted>{result}</Deleted>")
    return 200, {}, f"<DeleteResult>{''.join(results)}</DeleteResult>".encode()


def _list(bucket: _Bucket, query: Mapping[str, str]) -> Answer:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after", "")
    most = int(query.get("max-keys", 1000))
    place = max(bisect.bisect_right(bucket.keys, after), bisect.bisect_left(bucket.keys, prefix))
    encoded = query.get("encoding-type") == "url"
    shown = quote if encoded else escape
    says_encoded = "<EncodingType>url</EncodingType>" if encoded else ""
    entries: list[str] = []
    folders: list[str] = []
    last = ""
    while place < len(bucket.keys) and bucket.keys[place].startswith(prefix) and len(entries) + len(folders) < most:
        key = bucket.keys[place]
        place += 1
        folder, slash, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
        if slash:
            last = f"{prefix}{folder}{slash}\U0010ffff"
            folders.append(f"<CommonPrefixes><Prefix>{shown(prefix + folder + slash)}</Prefix></CommonPrefixes>")
            place = bisect.bisect_right(bucket.keys, last)
            continue
        last = key
        content, etag, at = bucket.objects[key]
        entries.append(
            f"<Contents><Key>{shown(key)}</Key><LastModified>{at.isoformat()[:23]}Z</LastModified>"
            f"<ETag>{escape(etag)}</ETag><Size>{len(content)}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    more = place < len(bucket.keys) and bucket.keys[place].startswith(prefix)
    token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{says_encoded}{token}{''.join(entries)}{''.join(folders)}</ListBucketResult>"
    )
    return 200, {"Content-Type": "application/xml"}, text.encode()


def _error(status: int, code: str) -> Answer:
    text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return status, {"Content-Type": "application/xml", "Content-Length": str(len(text))}, text


async def _run(port: int) -> None:
    server = await asyncio.start_server(_Stub().serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1])))
