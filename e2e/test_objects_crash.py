"""Object storage through rounds of all changes, with the server killed while calls are in flight. Start reading at
the test; `Model` is what must be true after each round."""

import hashlib
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import BotoCoreError, ClientError

from objects import INLINE, PART, complete, data_files, own_storage, remove_bucket, upload_parts
from objects_model import Changes, Model, Shared, content
from support import eventually

ROUNDS = int(os.environ.get("TARN_OBJECTS_ROUNDS", "20"))
SEED = int(os.environ.get("TARN_OBJECTS_SEED", "5"))
THREADS, KEYS_EACH, KEYS_SHARED, KEYS_VERSIONED, MOST_VERSIONS = 8, 8, 4, 2, 4
BUCKET, VERSIONED = "crash", "crash-versions"


def test_rounds_with_kills_keep_acknowledged_objects(tmp_path):
    """Rounds of changes with kills of the engine keep every acknowledged object and no other file."""
    print(f"seed {SEED}, {ROUNDS} rounds")
    chance, model = random.Random(SEED), Model(shared={f"shared/{each}": Shared() for each in range(KEYS_SHARED)})
    with own_storage(tmp_path) as storage:
        s3 = storage.account.client()
        for bucket in (BUCKET, VERSIONED):
            s3.create_bucket(Bucket=bucket)
        s3.put_bucket_versioning(Bucket=VERSIONED, VersioningConfiguration={"Status": "Enabled"})
        for number in range(ROUNDS):
            where = f"round {number}, seed {SEED}"
            one_round(storage.server, s3, chance, model)
            compare(storage, s3, model, where)
        for bucket in (BUCKET, VERSIONED):
            remove_bucket(s3, bucket)
        eventually(lambda: not storage.files(), what=f"a directory without files, seed {SEED}")
        assert "panicked" not in storage.server.output()
    print(f"{model.answered} calls answered, {model.unanswered} cut off")
    assert model.answered and model.unanswered, "a test in which nothing happens proves nothing"


def one_round(server, s3, chance: random.Random, model: Model):
    """Runs all threads, kills the server meanwhile, and starts it again."""
    stop = threading.Event()
    with ThreadPoolExecutor(THREADS) as threads:
        seeds = [chance.randrange(1 << 32) for _ in range(THREADS)]
        work = [threads.submit(keep_busy, s3, model, f"{number}/", seeds[number], stop) for number in range(THREADS)]
        # The first calls of a fresh server deserve a kill as much as later ones.
        time.sleep(0.05 + chance.random() ** 2 * 0.8)
        server.process.kill()
        server.process.wait()
        stop.set()
    server.start()
    for each in work:
        each.result()


def keep_busy(s3, model: Model, prefix: str, seed: int, stop: threading.Event):
    """Makes random calls until the server is gone, mostly on keys that no other thread uses."""
    chance = random.Random(seed)
    actions = {
        put_inline: 6, put_file: 6, put_parts: 3, copy: 2, delete: 3, delete_many: 1, check_read: 4,
        put_version: 4, delete_version: 2,
    }  # fmt: skip
    while not stop.is_set():
        key = chance.choice([*model.shared]) if chance.random() < 0.2 else f"{prefix}{chance.randrange(KEYS_EACH)}"
        action = chance.choices([*actions], [*actions.values()])[0]
        try:
            action(s3, chance, model, key, prefix)
        except BotoCoreError:
            model.unanswered += 1
            return
        model.answered += 1


def change(model: Model, changes: Changes, call):
    """Makes a call that changes keys. Without a response it may have been executed or not."""
    model.begin(changes)
    try:
        call()
    except BotoCoreError:
        model.end(changes, answered=False)
        raise
    model.end(changes, answered=True)


def random_body(chance: random.Random, as_file: bool) -> bytes:
    """A body that fits into a row, or one that becomes a file."""
    if as_file:
        return chance.randbytes(INLINE + 1 + int(chance.random() ** 4 * 2_000_000))
    return chance.randbytes(chance.choice([0, 1, chance.randrange(INLINE), INLINE]))


def put_inline(s3, chance: random.Random, model: Model, key: str, _prefix):
    """Puts an object that fits into a row."""
    body = random_body(chance, as_file=False)
    change(model, {key: content(body, 0)}, lambda: s3.put_object(Bucket=BUCKET, Key=key, Body=body))


def put_file(s3, chance: random.Random, model: Model, key: str, _prefix):
    """Puts an object that becomes a file."""
    body = random_body(chance, as_file=True)
    change(model, {key: content(body, 1)}, lambda: s3.put_object(Bucket=BUCKET, Key=key, Body=body))


def put_parts(s3, chance: random.Random, model: Model, key: str, _prefix):
    """Puts an object in one or two parts, of which one may be sent twice; sometimes aborts the upload or leaves it
    open."""
    bodies = [chance.randbytes(PART)] if chance.random() < 0.15 else []
    bodies.append(chance.randbytes(chance.randrange(1, 200_000)))
    upload, parts = upload_parts(s3, BUCKET, key, bodies)
    if chance.random() < 0.3:
        bodies[-1], last = chance.randbytes(chance.randrange(1, 200_000)), len(bodies)
        again = s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=last, Body=bodies[-1])
        parts[-1]["ETag"] = again["ETag"]
    end = chance.random()
    if end < 0.15:
        s3.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload)
    elif end < 0.85:
        after = {key: content(b"".join(bodies), len(bodies))}
        change(model, after, lambda: complete(s3, BUCKET, key, upload, parts))


def copy(s3, chance: random.Random, model: Model, key: str, prefix: str):
    """Copies an object of the same thread."""
    source = f"{prefix}{chance.randrange(KEYS_EACH)}"
    known = list(model.contents_of(source))
    if source != key and len(known) == 1 and known[0]:
        from_ = f"{BUCKET}/{source}"
        change(model, {key: known[0]}, lambda: s3.copy_object(Bucket=BUCKET, Key=key, CopySource=from_))


def delete(s3, _chance, model: Model, key: str, _prefix):
    """Deletes an object, if there is one."""
    change(model, {key: None}, lambda: s3.delete_object(Bucket=BUCKET, Key=key))


def delete_many(s3, chance: random.Random, model: Model, key: str, prefix: str):
    """Deletes several objects in one call."""
    keys = {key, *(f"{prefix}{chance.randrange(KEYS_EACH)}" for _ in range(3))}
    doomed = {"Objects": [{"Key": each} for each in keys]}

    def call():
        assert not s3.delete_objects(Bucket=BUCKET, Delete=doomed).get("Errors")

    change(model, dict.fromkeys(keys), call)


def check_read(s3, _chance, model: Model, key: str, _prefix):
    """Reads a key: a thread's own write is never stale, and no content appears that was never written."""
    before = model.contents_of(key)
    seen = read_checksum(s3, BUCKET, key)
    fine = before | model.contents_of(key)
    assert seen in {each and each.sum for each in fine}, f"{key}: {seen}, not {fine}"


def put_version(s3, chance: random.Random, model: Model, _key, prefix: str):
    """Adds a version to a key: an object or a delete marker. Earlier versions stay."""
    key = f"{prefix}{chance.randrange(KEYS_VERSIONED)}"
    versions, kind = model.versions, chance.choice([0, 1, None])
    body = b"" if kind is None else random_body(chance, as_file=kind == 1)
    after = None if kind is None else content(body, kind)
    try:
        if after is None:
            made = s3.delete_object(Bucket=VERSIONED, Key=key)
        else:
            made = s3.put_object(Bucket=VERSIONED, Key=key, Body=body)
    except BotoCoreError:
        versions.added.setdefault(key, []).append(after)
        raise
    versions.contents_of(key)[made["VersionId"]] = after
    if len(versions.contents_of(key)) > MOST_VERSIONS:
        delete_version(s3, chance, model, _key, prefix)


def delete_version(s3, chance: random.Random, model: Model, _key, prefix: str):
    """Deletes one version."""
    keys = [key for key in (f"{prefix}{each}" for each in range(KEYS_VERSIONED)) if model.versions.contents_of(key)]
    if not keys:
        return
    key = max(keys, key=lambda key: len(model.versions.contents_of(key)))
    version = chance.choice([*model.versions.contents_of(key)])
    model.versions.doomed.add(version)
    s3.delete_object(Bucket=VERSIONED, Key=key, VersionId=version)
    del model.versions.contents_of(key)[version]


def read_checksum(s3, bucket: str, key: str, **which) -> str | None:
    """The checksum of an object, or None."""
    try:
        return hashlib.sha256(s3.get_object(Bucket=bucket, Key=key, **which)["Body"].read()).hexdigest()
    except ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchKey", error.response
        return None


def compare(storage, s3, model: Model, where: str):
    """Checks that every object is a possible one, no other is visible, and every file belongs to an object."""
    keys = model.keys()
    with ThreadPoolExecutor(THREADS) as threads:
        seen = dict(zip(keys, threads.map(lambda key: read_checksum(s3, BUCKET, key), keys)))
    for key, sum_ in seen.items():
        fits = {each for each in model.contents_of(key) if (each and each.sum) == sum_}
        assert fits, f"{where}: {key} is {sum_}, not one of {model.contents_of(key)}"
        model.settle(key, fits)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    listed = {each["Key"] for page in pages for each in page.get("Contents", [])}
    assert listed == {key for key, sum_ in seen.items() if sum_}, where
    compare_versions(s3, model, where)
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=BUCKET):
        for upload in page.get("Uploads", []):
            s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    wanted, files = model.files(), data_files(storage.server.data)

    def is_swept() -> bool:
        nonlocal files
        files = data_files(storage.server.data)
        return len(files) == wanted

    try:
        eventually(is_swept, what="the end of the sweep")
    except AssertionError:
        raise AssertionError(f"{where}: {len(files)} files, of which {wanted} are wanted: {sorted(files)}") from None


def compare_versions(s3, model: Model, where: str):
    """Checks that every acknowledged version exists, and no other than the requested ones."""
    objects: list[tuple[str, str]] = []
    seen: dict[str, dict[str, str | None]] = {key: {} for key in [*model.versions.certain, *model.versions.added]}
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=VERSIONED):
        objects += [(each["Key"], each["VersionId"]) for each in page.get("Versions", [])]
        for each in page.get("DeleteMarkers", []):
            seen.setdefault(each["Key"], {})[each["VersionId"]] = None
    with ThreadPoolExecutor(THREADS) as threads:
        sums = threads.map(lambda each: read_checksum(s3, VERSIONED, each[0], VersionId=each[1]), objects)
        for (key, version), sum_ in zip(objects, sums):
            assert sum_, f"{where}: version {version} of {key} is listed and cannot be read"
            seen.setdefault(key, {})[version] = sum_
    for key, versions in seen.items():
        model.versions.compare(key, versions)
