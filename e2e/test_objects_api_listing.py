"""Listings in both forms: order, prefixes, delimiters, pages and names that XML cannot contain."""

import re
from urllib.parse import unquote_plus

import pytest

from objects import bucket, keys_of, new_bucket, prefixes_of, put, s3, storage  # noqa: F401
from objects_wire import Wire

TREE = ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/bla", "cquux/thud"]


@pytest.fixture(params=["list_objects", "list_objects_v2"])
def listing(request, s3, bucket):
    """Either form of a listing of the bucket: `listing(Prefix="a")`."""
    return lambda **options: getattr(s3, request.param)(Bucket=bucket, **options)


def names(page: dict) -> tuple[list[str], list[str]]:
    """Keys and common prefixes of a page."""
    return keys_of(page), prefixes_of(page)


def test_empty_bucket_lists_nothing(listing):
    """An empty bucket lists nothing."""
    page = listing()
    assert names(page) == ([], []) and page["IsTruncated"] is False


def test_keys_are_sorted_by_bytes(s3, bucket, listing):
    """Keys are listed in the order of their UTF-8 bytes."""
    keys = ["a", "B", "a/", "a-", "a0", "é", "z", "~", " ", "!", "日本", "\U0001f600", "\ufb00", "aa"]
    put(s3, bucket, *keys, body="")
    assert keys_of(listing()) == sorted(keys, key=str.encode)


def test_listing_describes_object(s3, bucket, listing):
    """A listing contains the size, entity tag, storage class and time of an object."""
    put(s3, bucket, "key", body="content")
    (seen,) = listing()["Contents"]
    head = s3.head_object(Bucket=bucket, Key="key")
    assert (seen["Size"], seen["ETag"], seen["StorageClass"]) == (7, head["ETag"], "STANDARD")
    assert seen["LastModified"].replace(microsecond=0) == head["LastModified"]


@pytest.mark.parametrize(
    ("delimiter", "keys", "prefixes"),
    [
        ("/", ["asdf"], ["boo/", "cquux/"]),
        ("a", ["cquux/thud"], ["a", "boo/ba", "cquux/bla"]),
        ("boo/ba", ["asdf", "cquux/bla", "cquux/thud"], ["boo/ba"]),
        ("%", TREE, []),
        (" ", TREE, []),
        ("\n", TREE, []),
        ("never", TREE, []),
        ("", TREE, []),
    ],
)
def test_delimiters_group_keys(s3, bucket, listing, delimiter, keys, prefixes):
    """A delimiter groups keys into common prefixes."""
    put(s3, bucket, *TREE)
    page = listing(Delimiter=delimiter)
    assert names(page) == (keys, prefixes)
    assert page.get("Delimiter", "") == delimiter


@pytest.mark.parametrize("delimiter", ["%", " ", "\n", "+", "ü"])
def test_unusual_delimiters_group_keys(s3, bucket, listing, delimiter):
    """Unusual delimiters group keys as well."""
    put(s3, bucket, f"b{delimiter}ar", f"b{delimiter}az", f"c{delimiter}ab", "foo", body="")
    assert names(listing(Delimiter=delimiter)) == (["foo"], [f"b{delimiter}", f"c{delimiter}"])


@pytest.mark.parametrize(
    ("prefix", "delimiter", "keys", "prefixes"),
    [
        ("boo/", "", ["boo/bar", "boo/baz/xyzzy"], []),
        ("bo", "", ["boo/bar", "boo/baz/xyzzy"], []),
        ("", "", TREE, []),
        ("d", "", [], []),
        ("\n", "", [], []),
        ("boo/", "/", ["boo/bar"], ["boo/baz/"]),
        ("bo", "/", [], ["boo/"]),
        ("boo/ba", "/", ["boo/bar"], ["boo/baz/"]),
        ("boo/baz/xyzzy", "/", ["boo/baz/xyzzy"], []),
        ("cquux/", "a", ["cquux/thud"], ["cquux/bla"]),
        ("y", "/", [], []),
        ("y", "z", [], []),
    ],
)
def test_prefixes_filter_keys(s3, bucket, listing, prefix, delimiter, keys, prefixes):
    """A prefix filters keys, with and without a delimiter."""
    put(s3, bucket, *TREE)
    page = listing(Prefix=prefix, Delimiter=delimiter)
    assert names(page) == (keys, prefixes)
    assert page["Prefix"] == prefix


def test_key_that_ends_in_delimiter_is_common_prefix(s3, bucket, listing):
    """A key that ends in the delimiter is a common prefix."""
    put(s3, bucket, "asdf/", "asdf", body="")
    assert names(listing(Delimiter="/")) == (["asdf"], ["asdf/"])
    assert names(listing(Prefix="asdf/", Delimiter="/")) == (["asdf/"], [])


def test_every_page_size_lists_the_same(s3, bucket, listing, request):
    """Pages of every size list the same keys."""
    put(s3, bucket, *TREE)
    for size in (1, 2, 3, 5, 1000):
        pages = list(s3.get_paginator(request.node.callspec.params["listing"]).paginate(
            Bucket=bucket, PaginationConfig={"PageSize": size}))  # fmt: skip
        assert [key for page in pages for key in keys_of(page)] == TREE
        assert len(pages) == -(-len(TREE) // size), "no empty page at the end"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pages_count_common_prefix_once(s3, bucket, listing, request, size):
    """A common prefix counts once, however its keys are spread over pages."""
    put(s3, bucket, *TREE)
    pages = list(s3.get_paginator(request.node.callspec.params["listing"]).paginate(
        Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": size}))  # fmt: skip
    assert [each for page in pages for each in keys_of(page) + prefixes_of(page)] == ["asdf", "boo/", "cquux/"]
    assert all(len(keys_of(page)) + len(prefixes_of(page)) <= size for page in pages)
    assert [page["IsTruncated"] for page in pages] == [True] * (len(pages) - 1) + [False]


def test_page_has_at_most_thousand_keys(s3, bucket, listing):
    """A page has at most a thousand keys."""
    page = listing()
    assert page["MaxKeys"] == 1000
    assert listing(MaxKeys=5000)["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_max_keys_zero_lists_nothing(s3, bucket, listing):
    """`max-keys=0` lists nothing."""
    put(s3, bucket, *TREE)
    page = listing(MaxKeys=0)
    assert names(page) == ([], []) and page["IsTruncated"] is False


@pytest.mark.parametrize("form", ["", "list-type=2&"])
@pytest.mark.parametrize("value", ["blah", "%0A", "-1", "1.5", "99999999999999999999"])
def test_invalid_max_keys_is_refused(storage, bucket, form, value):
    """An invalid `max-keys` is refused."""
    assert Wire(storage.account).call("GET", f"/{bucket}", f"{form}max-keys={value}").outcome == (400, "InvalidArgument")


@pytest.mark.parametrize(
    ("marker", "keys"),
    [("", TREE), ("boo/bar", TREE[2:]), ("bo", TREE[1:]), ("zzz", []), ("\n", TREE), ("%", TREE), ("asdf", TREE[1:])],
)
def test_marker_starts_listing_after_key(s3, bucket, marker, keys):
    """A marker starts the listing after a key."""
    put(s3, bucket, *TREE)
    page = s3.list_objects(Bucket=bucket, Marker=marker)
    assert keys_of(page) == keys and page["Marker"] == marker
    page = s3.list_objects_v2(Bucket=bucket, StartAfter=marker)
    assert keys_of(page) == keys and page.get("StartAfter", "") == marker


def test_next_marker_comes_with_delimiter(s3, bucket):
    """The old form returns `NextMarker` with a delimiter."""
    put(s3, bucket, *TREE)
    first = s3.list_objects(Bucket=bucket, Delimiter="/", MaxKeys=2)
    assert (names(first), first["NextMarker"]) == ((["asdf"], ["boo/"]), "boo/")
    second = s3.list_objects(Bucket=bucket, Delimiter="/", Marker=first["NextMarker"])
    assert names(second) == ([], ["cquux/"])
    assert "NextMarker" not in second


def test_continuation_token_continues_listing(s3, bucket):
    """A continuation token continues the listing and takes precedence over `StartAfter`."""
    put(s3, bucket, *TREE)
    first = s3.list_objects_v2(Bucket=bucket, MaxKeys=1, StartAfter="b")
    assert (first["KeyCount"], first["IsTruncated"], keys_of(first)) == (1, True, ["boo/bar"])
    rest = s3.list_objects_v2(Bucket=bucket, ContinuationToken=first["NextContinuationToken"], StartAfter="asdf")
    assert keys_of(rest) == TREE[2:], "the token takes precedence"
    assert rest["ContinuationToken"] == first["NextContinuationToken"] and "NextContinuationToken" not in rest
    grouped = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert grouped["KeyCount"] == 3, "prefixes count"


def test_invalid_continuation_token_is_refused(storage, bucket):
    """An invalid continuation token is refused."""
    answer = Wire(storage.account).call("GET", f"/{bucket}", "continuation-token=%00%ff&list-type=2")
    assert answer.outcome == (400, "InvalidArgument")


def test_owner_is_listed_on_request(s3, bucket):
    """The new form lists owners only on request."""
    put(s3, bucket, "key")
    assert s3.list_objects(Bucket=bucket)["Contents"][0]["Owner"]["ID"]
    assert "Owner" not in s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    assert s3.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"][0]["Owner"]["ID"]


SPECIAL = ["asdf+b", "foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "a&b<c>'\"", "%41", "ü/日本", "tab\tand\nline"]
SPECIAL += ["\x01\x1f\x7f"]


def test_names_are_url_encoded_on_request(storage, s3, bucket):
    """Names are URL-encoded on request."""
    put(s3, bucket, *SPECIAL, body="")
    for form in ("", "&list-type=2"):
        answer = Wire(storage.account).call("GET", f"/{bucket}", "encoding-type=url" + form)
        text = answer.body.decode("ascii")
        found = re.findall("<Key>(.*?)</Key>", text)
        assert [unquote_plus(key) for key in found] == sorted(SPECIAL, key=str.encode)
        assert "asdf%2Bb" in found and "<EncodingType>url</EncodingType>" in text
        answer = Wire(storage.account).call("GET", f"/{bucket}", "delimiter=%2F&encoding-type=url" + form)
        found = re.findall("<CommonPrefixes><Prefix>(.*?)</Prefix>", answer.body.decode("ascii"))
        assert [unquote_plus(prefix) for prefix in found] == ["foo+1/", "foo/", "quux ab/", "ü/"]


def test_unknown_encoding_is_refused(storage, bucket):
    """An unknown encoding is refused."""
    assert Wire(storage.account).call("GET", f"/{bucket}", "encoding-type=base64").outcome == (400, "InvalidArgument")


def test_special_names_list_page_by_page(s3, bucket, listing, request):
    """Special names are listed page by page."""
    put(s3, bucket, *SPECIAL, body="")
    pages = s3.get_paginator(request.node.callspec.params["listing"]).paginate(Bucket=bucket, PaginationConfig={"PageSize": 1})
    assert [key for page in pages for key in keys_of(page)] == sorted(SPECIAL, key=str.encode)


def test_listing_shows_delete_at_once(s3, bucket, listing):
    """A listing shows a delete at once."""
    put(s3, bucket, *TREE)
    s3.delete_object(Bucket=bucket, Key="boo/bar")
    assert names(listing(Delimiter="/", Prefix="boo/")) == ([], ["boo/baz/"])
    s3.delete_object(Bucket=bucket, Key="boo/baz/xyzzy")
    assert names(listing(Delimiter="/")) == (["asdf"], ["cquux/"])


def test_large_common_prefix_is_skipped(s3, bucket, listing):
    """A common prefix with many keys leaves room for the keys after it."""
    put(s3, bucket, *[f"deep/{number:03}" for number in range(60)], "eels", body="")
    assert names(listing(Delimiter="/", MaxKeys=2)) == (["eels"], ["deep/"])
