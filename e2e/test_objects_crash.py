"""Object storage through rounds of everything that is done to objects, with the server killed while calls are in flight. Start
reading at the test; `Model` is what must be true after each round."""

import hashlib
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from objects import INLINE, PART, complete, data_files, own_storage, upload_parts
from support import eventually

ROUNDS = int(os.environ.get("TARN_OBJECTS_ROUNDS", "20"))
SEED = int(os.environ.get("TARN_OBJECTS_SEED", "5"))
THREADS, KEYS_EACH = 8, 8
BUCKET = "crash"


@dataclass(frozen=True)
class Content:
    """What an object may be: the checksum of its bytes, and how many files they are in."""

    sum: str
    files: int


# What a key may have: contents, or nothing.
Possible = set[Content | None]


@dataclass
class Model:
    """What each key may have. More than one thing only after a call whose answer never came."""

    keys: dict[str, Possible] = field(default_factory=dict)
    answered: int = 0
    unanswered: int = 0

    def of(self, key: str) -> Possible:
        """What a key may have now."""
        return self.keys.get(key, {None})


def content(body: bytes, files: int) -> Content:
    """What these bytes are once they are written."""
    return Content(hashlib.sha256(body).hexdigest(), files)


def test_rounds_with_kills_keep_what_was_acknowledged(tmp_path):
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance, model = random.Random(SEED), Model()
    with own_storage(tmp_path) as storage:
        s3 = storage.account.client()
        s3.create_bucket(Bucket=BUCKET)
        for number in range(ROUNDS):
            where = f"round {number}, seed {SEED}"
            one_round(storage.server, s3, chance, model)
            compare(storage, s3, model, where)
        for key in model.keys:
            s3.delete_object(Bucket=BUCKET, Key=key)
        s3.delete_bucket(Bucket=BUCKET)
        eventually(lambda: not storage.files(), what=f"a directory without files, seed {SEED}")
        assert "panicked" not in storage.server.output()
    print(f"{model.answered} calls answered, {model.unanswered} cut off")
    assert model.answered and model.unanswered, "a test in which nothing happens says nothing"


def one_round(server, s3, chance: random.Random, model: Model):
    """All threads at work, a kill in the midst of it, and the server again."""
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS) as threads:
        seeds = [chance.randrange(1 << 32) for _ in range(THREADS)]
        work = [threads.submit(keep_busy, s3, model, f"{number}/", seeds[number], stop) for number in range(THREADS)]
        # The first calls of a fresh server are worth a kill as much as the later ones.
        time.sleep(0.05 + chance.random() ** 2 * 0.8)
        server.process.kill()
        server.process.wait()
        stop.set()
    server.start()
    for each in work:
        each.result()


def keep_busy(s3, model: Model, prefix: str, seed: int, stop: threading.Event):
    """One thing after the other, to keys that no other thread touches, until the server is gone."""
    chance = random.Random(seed)
    while not stop.is_set():
        key = f"{prefix}{chance.randrange(KEYS_EACH)}"
        action = chance.choices([put_inline, put_file, put_parts, copy, delete, look], [6, 6, 3, 2, 4, 4])[0]
        before, after = model.of(key), set()
        try:
            action(s3, chance, model, key, after)
        except BotoCoreError:
            # No answer: it may have happened or not.
            model.keys[key] = before | after
            model.unanswered += 1
            return
        model.answered += 1
        if after:
            model.keys[key] = after


def put_inline(s3, chance: random.Random, _model, key: str, after: Possible):
    """An object that fits into a row. Like all of these, it says what will be before it begins."""
    body = chance.randbytes(chance.choice([0, 1, chance.randrange(INLINE), INLINE]))
    after.add(content(body, 0))
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)


def put_file(s3, chance: random.Random, _model, key: str, after: Possible):
    """An object that is a file."""
    body = chance.randbytes(INLINE + 1 + int(chance.random() ** 4 * 2_000_000))
    after.add(content(body, 1))
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)


def put_parts(s3, chance: random.Random, _model, key: str, after: Possible):
    """An object in one part or in two; sometimes the upload is left open, for the sweep of another day."""
    bodies = [chance.randbytes(PART)] if chance.random() < 0.15 else []
    bodies.append(chance.randbytes(chance.randrange(1, 200_000)))
    upload, parts = upload_parts(s3, BUCKET, key, bodies)
    if chance.random() < 0.15:
        return
    after.add(content(b"".join(bodies), len(bodies)))
    complete(s3, BUCKET, key, upload, parts)


def copy(s3, chance: random.Random, model: Model, key: str, after: Possible):
    """A copy of another object of the same thread."""
    source = f"{key.split('/')[0]}/{chance.randrange(KEYS_EACH)}"
    known = list(model.of(source))
    if source == key or len(known) != 1 or known[0] is None:
        return
    after.add(known[0])
    s3.copy_object(Bucket=BUCKET, Key=key, CopySource=f"{BUCKET}/{source}")


def delete(s3, _chance, _model, key: str, after: Possible):
    """The end of an object, if there is one."""
    after.add(None)
    s3.delete_object(Bucket=BUCKET, Key=key)


def look(s3, _chance, model: Model, key: str, _after):
    """A read of what the thread itself has written is never stale."""
    seen = observe(s3, key)
    assert seen in {each and each.sum for each in model.of(key)}, f"{key}: {seen}, not {model.of(key)}"


def observe(s3, key: str) -> str | None:
    """The checksum of what is there."""
    try:
        return hashlib.sha256(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()).hexdigest()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchKey", error.response
        return None


def compare(storage, s3, model: Model, where: str):
    """Every object is one that it may be, no other is visible, and every file belongs to one."""
    with ThreadPoolExecutor(THREADS) as threads:
        seen = dict(zip(model.keys, threads.map(lambda key: observe(s3, key), model.keys)))
    for key, sum_ in seen.items():
        fits = {each for each in model.of(key) if (each and each.sum) == sum_}
        assert fits, f"{where}: {key} is {sum_}, not one of {model.of(key)}"
        model.keys[key] = fits
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    listed = {each["Key"] for page in pages for each in page.get("Contents", [])}
    assert listed == {key for key, sum_ in seen.items() if sum_}, where
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    wanted = sum(each.files for fits in model.keys.values() for each in fits if each)
    files = data_files(storage.server.data)

    def swept() -> bool:
        nonlocal files
        files = data_files(storage.server.data)
        return len(files) == wanted

    try:
        eventually(swept, what="the end of the sweep")
    except AssertionError:
        raise AssertionError(f"{where}: {len(files)} files, of which {wanted} are wanted: {sorted(files)}") from None
