"""What must be true of objects after calls of which some got no response. Start reading at `Model`."""

import hashlib
import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Content:
    """A possible content of an object: the checksum of its bytes, and the number of its files."""

    sum: str
    files: int


def content(body: bytes, files: int) -> Content:
    """The content that these bytes have once they are written."""
    return Content(hashlib.sha256(body).hexdigest(), files)


# The possible contents of a key, or none.
Possible = set[Content | None]
# What a call changes in keys, if it is executed.
Changes = dict[str, Content | None]


@dataclass
class Shared:
    """A key that several threads write: any of their calls may have been the last."""

    before: Possible = field(default_factory=lambda: {None})
    begun: Possible = field(default_factory=set)
    # Whether a call has been acknowledged since then: the content before it is gone then.
    overwritten: bool = False


@dataclass
class Model:
    """The possible contents of each key. There are several only after a call without a response, or where threads
    share a key."""

    own: dict[str, Possible] = field(default_factory=dict)
    shared: dict[str, Shared] = field(default_factory=dict)
    versions: "Versions" = field(default_factory=lambda: Versions())
    answered: int = 0
    unanswered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def contents_of(self, key: str) -> Possible:
        """The possible contents of a key now."""
        with self.lock:
            if shared := self.shared.get(key):
                return shared.begun | (set() if shared.overwritten else shared.before)
            return set(self.own.get(key, {None}))

    def begin(self, changes: Changes):
        """Records that a call is about to be made."""
        with self.lock:
            for key, after in changes.items():
                if key in self.shared:
                    self.shared[key].begun.add(after)

    def end(self, changes: Changes, answered: bool):
        """Records that a call got a response, or none."""
        with self.lock:
            for key, after in changes.items():
                if key in self.shared:
                    self.shared[key].overwritten |= answered
                else:
                    self.own[key] = {after} if answered else self.own.get(key, {None}) | {after}

    def settle(self, key: str, seen: Possible):
        """Records the content of a key that no thread is writing."""
        with self.lock:
            if key in self.shared:
                self.shared[key] = Shared(before=seen)
            else:
                self.own[key] = seen

    def keys(self) -> list[str]:
        """Every key that was ever written."""
        return [*self.own, *self.shared]

    def files(self) -> int:
        """The number of files when every content is known."""
        current = [each for key in self.keys() for each in self.contents_of(key)]
        return sum(each.files for each in [*current, *self.versions.contents()] if each)


@dataclass
class Versions:
    """What must be in a bucket with versioning. Each thread uses its own keys."""

    # The versions that each key must have; delete markers are None.
    certain: dict[str, dict[str, Content | None]] = field(default_factory=dict)
    # Versions that may have been added by calls without a response.
    added: dict[str, list[Content | None]] = field(default_factory=dict)
    # Versions that may have been removed.
    doomed: set[str] = field(default_factory=set)

    def contents_of(self, key: str) -> dict[str, Content | None]:
        """The versions of a key."""
        return self.certain.setdefault(key, {})

    def contents(self) -> list[Content | None]:
        """The contents of all versions."""
        return [each for versions in self.certain.values() for each in versions.values()]

    def compare(self, key: str, seen: dict[str, str | None]):
        """Compares with the checksum of each version in `seen`; what was uncertain is certain afterwards."""
        certain, added = self.contents_of(key), self.added.pop(key, [])
        for version in [version for version in certain if version not in seen]:
            assert version in self.doomed, f"{key}: version {version} is lost"
            del certain[version]
        for version, sum_ in seen.items():
            if version in certain:
                assert sum_ == (certain[version] and certain[version].sum), f"{key}: version {version} has other content"
            else:
                fits = [each for each in added if (each and each.sum) == sum_]
                assert fits, f"{key}: version {version} was never written"
                added.remove(fits[0])
                certain[version] = fits[0]
