"""What must be true of objects after calls of which some were never answered. Start reading at `Model`."""

import hashlib
import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Content:
    """What an object may be: the checksum of its bytes, and how many files they are in."""

    sum: str
    files: int


def content(body: bytes, files: int) -> Content:
    """What these bytes are once they are written."""
    return Content(hashlib.sha256(body).hexdigest(), files)


# What a key may have: contents, or nothing.
Possible = set[Content | None]
# What a call makes of keys, if it happens.
Changes = dict[str, Content | None]


@dataclass
class Shared:
    """A key that several threads write to: which call came last is not known, only that it was one of them."""

    before: Possible = field(default_factory=lambda: {None})
    begun: Possible = field(default_factory=set)
    # Whether a call has been answered since: what was before is gone then.
    overwritten: bool = False


@dataclass
class Model:
    """What each key may have. More than one thing only after a call whose answer never came, or where threads meet."""

    own: dict[str, Possible] = field(default_factory=dict)
    shared: dict[str, Shared] = field(default_factory=dict)
    versions: "Versions" = field(default_factory=lambda: Versions())
    answered: int = 0
    unanswered: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def contents_of(self, key: str) -> Possible:
        """What a key may have now."""
        with self.lock:
            if shared := self.shared.get(key):
                return shared.begun | (set() if shared.overwritten else shared.before)
            return set(self.own.get(key, {None}))

    def begin(self, changes: Changes):
        """A call is about to be made."""
        with self.lock:
            for key, after in changes.items():
                if key in self.shared:
                    self.shared[key].begun.add(after)

    def end(self, changes: Changes, answered: bool):
        """A call has been answered, or never will be."""
        with self.lock:
            for key, after in changes.items():
                if key in self.shared:
                    self.shared[key].overwritten |= answered
                else:
                    self.own[key] = {after} if answered else self.own.get(key, {None}) | {after}

    def settle(self, key: str, seen: Possible):
        """A key was looked at while nobody writes to it."""
        with self.lock:
            if key in self.shared:
                self.shared[key] = Shared(before=seen)
            else:
                self.own[key] = seen

    def keys(self) -> list[str]:
        """Every key that was ever written to."""
        return [*self.own, *self.shared]

    def files(self) -> int:
        """How many files there must be, when everything is settled."""
        current = [each for key in self.keys() for each in self.contents_of(key)]
        return sum(each.files for each in [*current, *self.versions.contents()] if each)


@dataclass
class Versions:
    """What must be in a bucket that keeps versions. Threads keep to keys of their own."""

    # The versions that there must be of each key; marks of deletions are None.
    certain: dict[str, dict[str, Content | None]] = field(default_factory=dict)
    # What may have been added, by calls that were not answered.
    added: dict[str, list[Content | None]] = field(default_factory=dict)
    # Versions that may have been removed.
    doomed: set[str] = field(default_factory=set)

    def contents_of(self, key: str) -> dict[str, Content | None]:
        """The versions of a key."""
        return self.certain.setdefault(key, {})

    def contents(self) -> list[Content | None]:
        """What all versions have."""
        return [each for versions in self.certain.values() for each in versions.values()]

    def compare(self, key: str, seen: dict[str, str | None]):
        """`seen` has the checksum of each version that there is; what was not certain is so afterwards."""
        certain, added = self.contents_of(key), self.added.pop(key, [])
        for version in [version for version in certain if version not in seen]:
            assert version in self.doomed, f"{key}: version {version} is lost"
            del certain[version]
        for version, sum_ in seen.items():
            if version in certain:
                assert sum_ == (certain[version] and certain[version].sum), f"{key}: version {version} is another"
            else:
                fits = [each for each in added if (each and each.sum) == sum_]
                assert fits, f"{key}: nobody has made version {version}"
                added.remove(fits[0])
                certain[version] = fits[0]
