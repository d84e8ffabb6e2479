"""S3 over a plain connection, for calls that boto3 would never send. Start reading at `Wire`."""

import hashlib
import hmac
import http.client
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from objects import Account

UNSIGNED = "UNSIGNED-PAYLOAD"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
SECONDS = 60


@dataclass
class Response:
    """A response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str | None:
        """The error code of S3."""
        found = re.search(rb"<Code>(\w+)</Code>", self.body)
        return found[1].decode() if found else None

    @property
    def outcome(self) -> tuple[int, str | None]:
        """Status and code together."""
        return self.status, self.code


@dataclass
class Signed:
    """A signature, and what is needed to sign the chunks after it."""

    headers: dict[str, str]
    signature: str
    moment: str
    scope: str
    key: bytes = field(repr=False)

    def chunk(self, previous: str, content: bytes) -> str:
        """The signature of a chunk."""
        return self._next("AWS4-HMAC-SHA256-PAYLOAD", previous, EMPTY_SHA256, hashlib.sha256(content).hexdigest())

    def trailer(self, previous: str, lines: str) -> str:
        """The signature of the trailing headers."""
        return self._next("AWS4-HMAC-SHA256-TRAILER", previous, hashlib.sha256(lines.encode()).hexdigest())

    def _next(self, kind: str, *parts: str) -> str:
        return _hmac(self.key, "\n".join((kind, self.moment, self.scope, *parts))).hex()


class Wire:
    """Signs calls as S3 specifies, with any time, region, host or wrong claim that a test needs."""

    def __init__(self, account: Account):
        self.account = account
        address = urlsplit(account.endpoint)
        self.host, self.port = address.hostname, address.port

    def sign(self, method, path, query="", *, headers=None, payload=EMPTY_SHA256, at=None, region=None) -> Signed:
        """The headers of a call, including its signature."""
        at = at or datetime.now(UTC)
        moment, scope = at.strftime("%Y%m%dT%H%M%SZ"), self.scope(at, region)
        headers = {"host": f"{self.host}:{self.port}", "x-amz-date": moment, "x-amz-content-sha256": payload} | (headers or {})
        names, canonical = canonical_request(method, path, query, headers, payload)
        key = self.key(at, region)
        signature = _hmac(key, to_sign(moment, scope, canonical)).hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.account.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return Signed(headers, signature, moment, scope, key)

    def presign(self, method, path, *, seconds=60, at=None, headers=None, query=None, region=None) -> str:
        """Path and query of a URL that is valid for this many seconds from `at`."""
        at = at or datetime.now(UTC)
        moment, scope = at.strftime("%Y%m%dT%H%M%SZ"), self.scope(at, region)
        headers = {"host": f"{self.host}:{self.port}"} | (headers or {})
        fields = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{self.account.access_key}/{scope}",
            "X-Amz-Date": moment, "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": ";".join(sorted(headers)),
        }  # fmt: skip
        text = canonical_query(fields | (query or {}))
        _, canonical = canonical_request(method, path, text, headers, UNSIGNED)
        signature = _hmac(self.key(at, region), to_sign(moment, scope, canonical)).hex()
        return f"{path}?{text}&X-Amz-Signature={signature}"

    def call(self, method, path, query="", *, body=b"", headers=None, payload=None, **signing) -> Response:
        """One signed call; `payload` is the claimed hash of the body."""
        payload = hashlib.sha256(body).hexdigest() if payload is None else payload
        signed = self.sign(method, path, query, headers=headers, payload=payload, **signing)
        return self.send(method, path + (f"?{query}" if query else ""), headers=signed.headers, body=body)

    def send(self, method, target, *, headers=None, body=b"", length=None) -> Response:
        """Sends exactly what is given, valid or not, and reads the response even when the body was not accepted."""
        headers = {"host": f"{self.host}:{self.port}"} | (headers or {})
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            if "transfer-encoding" not in headers and (body or method in ("PUT", "POST")):
                headers |= {"content-length": str(len(body) if length is None else length)}
            for name, value in headers.items():
                connection.putheader(name, value)
            try:
                connection.endheaders(body or None)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = connection.getresponse()
            lower = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, lower, answer.read())
        finally:
            connection.close()

    def scope(self, at: datetime, region=None) -> str:
        """The scope of the signatures of a day."""
        return f"{at:%Y%m%d}/{region or self.account.region}/s3/aws4_request"

    def key(self, at: datetime, region=None) -> bytes:
        """The key of the signatures of a day."""
        key = b"AWS4" + self.account.secret_key.encode()
        for part in self.scope(at, region).split("/"):
            key = _hmac(key, part)
        return key


def canonical_query(fields: dict[str, str]) -> str:
    """A query in its canonical form."""
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(fields.items()))


def canonical_request(method, path, query, headers, payload) -> tuple[str, str]:
    """The names of the signed headers, and the canonical request."""
    headers = dict(sorted((name.lower(), " ".join(_text(value).split())) for name, value in headers.items()))
    query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&") if part))
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return names, f"{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"


def to_sign(moment: str, scope: str, canonical: str) -> str:
    """The string to sign."""
    return f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode('latin-1')).hexdigest()}"


def _text(value) -> str:
    # A header is bytes; as Latin-1 each of them is a character.
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
