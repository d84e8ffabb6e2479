"""Bodies in S3's chunks, signed or not, with trailing headers or not, and the checksums of S3."""

import base64
import functools
import hashlib
import zlib

from objects_wire import SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER, Response, Wire


def send_chunks(
    wire: Wire, path: str, chunks: list[bytes], kind: str, *, trailer=None, spoil=None, headers=None, region=None
) -> Response:
    """Puts an object in chunks; `trailer` is a name and a value; `spoil` changes the body after it was signed."""
    size = sum(map(len, chunks))
    headers = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(size)} | (headers or {})
    if trailer:
        headers["x-amz-trailer"] = trailer[0]
    signed = wire.sign("PUT", path, headers=headers, payload=kind, region=region)
    body = unsigned_body(chunks, trailer) if kind == UNSIGNED_CHUNKS_TRAILER else signed_body(signed, chunks, trailer)
    assert kind in (SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER)
    return wire.send("PUT", path, headers=signed.headers, body=spoil(body) if spoil else body)


def signed_body(signed, chunks: list[bytes], trailer=None) -> bytes:
    """Each chunk carries a signature that continues the one before."""
    body, previous = b"", signed.signature
    for chunk in [*chunks, b""]:
        previous = signed.chunk(previous, chunk)
        body += f"{len(chunk):x};chunk-signature={previous}\r\n".encode() + chunk + (b"\r\n" if chunk else b"")
    if trailer:
        name, value = trailer
        signature = signed.trailer(previous, f"{name}:{value}\n")
        body += f"{name}:{value}\r\nx-amz-trailer-signature:{signature}\r\n".encode()
    return body + b"\r\n"


def unsigned_body(chunks: list[bytes], trailer=None) -> bytes:
    """Chunks that only the trailing checksum protects."""
    body = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks) + b"0\r\n"
    return body + (f"{trailer[0]}:{trailer[1]}\r\n".encode() if trailer else b"") + b"\r\n"


def _table(polynomial: int) -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


def _crc(polynomial: int, bits: int):
    table, ones = _table(polynomial), (1 << bits) - 1

    def compute(content: bytes) -> bytes:
        value = ones
        for byte in content:
            value = table[(value ^ byte) & 255] ^ value >> 8
        return (value ^ ones).to_bytes(bits // 8, "big")

    return compute


# The names in S3 calls, and functions that compute the sum as bytes.
SUMS = {
    "CRC32": lambda content: zlib.crc32(content).to_bytes(4, "big"),
    "CRC32C": _crc(0x82F63B78, 32),
    "CRC64NVME": _crc(0x9A6C9329AC4BC9B5, 64),
    "SHA1": lambda content: hashlib.sha1(content).digest(),
    "SHA256": lambda content: hashlib.sha256(content).digest(),
}


# Cached, because some of them are slow in Python.
@functools.cache
def checksum(algorithm: str, content: bytes) -> str:
    """A checksum as S3 writes it."""
    return base64.b64encode(SUMS[algorithm](content)).decode()


def composite(algorithm: str, parts: list[bytes]) -> str:
    """The checksum of the checksums of parts, with their number."""
    joined = b"".join(base64.b64decode(checksum(algorithm, part)) for part in parts)
    return f"{checksum(algorithm, joined)}-{len(parts)}"
