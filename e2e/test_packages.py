"""The Debian package and the archive: what is in them, and the life of the package in a small Debian of its own."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from instances import needs_root
from registry import debian
from support import BINARY, ENVIRONMENT, tarn

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
# A debug build is large, and these packages are not kept.
QUICK = ENVIRONMENT | {"TARN_DEB_COMPRESSION": "-Zgzip -z1", "TARN_DIST_COMPRESSION": "-1"}
PATHS = [name for name in ("CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN") if name in os.environ]
QUICK |= {name: os.environ[name] for name in PATHS}


def run(*command, code=0, environment=None) -> str:
    """What a command prints; it must end with this code."""
    done = subprocess.run(
        [str(part) for part in command], env=QUICK | (environment or {}), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def build_deb(directory: Path, *version: str) -> Path:
    """Packs the program under test."""
    return Path(run(ROOT / "scripts/deb", BINARY, directory, *version).strip())


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """The package of the program under test."""
    return build_deb(tmp_path_factory.mktemp("package"))


def test_version_names_its_parts():
    """The program, the changelog and the package have the same version."""
    said = tarn("--version").stdout
    # A debug build says so instead of its commit, which would have to be built again with each one.
    built = r"debug build|[0-9a-f]{10,}, \d{4}-\d\d-\d\d"
    assert re.fullmatch(rf"tarn {re.escape(VERSION)} \(({built})\)\n", said), said
    assert f"## [{VERSION}] - 20" in (ROOT / "CHANGELOG.md").read_text()


def test_package_contains_what_belongs_to_the_program(package, tmp_path):
    """The package has the program, the unit, the configuration, completions and man pages, for root alone to change."""
    about = run("dpkg-deb", "--field", package)
    assert f"Version: {VERSION}-1" in about and "libseccomp2" in about and "nftables" in about
    run("dpkg-deb", "--extract", package, tmp_path)
    assert run(tmp_path / "usr/bin/tarn", "--version") == tarn("--version").stdout
    unit = (tmp_path / "usr/lib/systemd/system/tarn.service").read_text()
    assert "ExecStart=/usr/bin/tarn serve --config /etc/tarn/tarn.toml\n" in unit and "Type=notify" in unit
    assert "valid" in run(tmp_path / "usr/bin/tarn", "serve", "--check", "--config", tmp_path / "etc/tarn/tarn.toml")
    share = tmp_path / "usr/share"
    completions = ("bash-completion/completions/tarn", "zsh/vendor-completions/_tarn", "fish/vendor_completions.d/tarn.fish")
    assert all("tarn" in (share / path).read_text() for path in completions)
    page = gzip.decompress((share / "man/man1/tarn-cluster-create.1.gz").read_bytes()).decode()
    assert "tarn\\-cluster\\-create" in page or "tarn cluster create" in page.replace("\\-", "-"), page[:500]
    assert "Apache License" in (share / "doc/tarn/copyright").read_text()
    listed = run("dpkg-deb", "--contents", package).splitlines()
    assert all(line.split()[1] == "root/root" for line in listed), listed
    assert not any(line[8] == "w" for line in listed if not line.startswith("l")), "others may change a file"


def test_archive_has_checksums_and_parts(tmp_path):
    """The archive matches its checksum, and the list beside it names the crates in the program, with the guest's."""
    run(ROOT / "scripts/dist", BINARY, tmp_path)
    (archive,), (parts,), (sums,) = (list(tmp_path.glob(f"tarn-{VERSION}-*{end}")) for end in (".tar.gz", ".cdx.json", ".sha256"))
    for line in sums.read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == digest
    with tarfile.open(archive) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    assert {"usr/bin/tarn", "usr/share/doc/tarn/tarn.cdx.json", "etc/tarn/tarn.toml"} <= names
    listed = json.loads(parts.read_text())
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    assert listed["metadata"]["component"]["purl"] == f"pkg:cargo/tarn@{VERSION}"
    components = {each["name"]: each for each in listed["components"]}
    assert {"tokio", "rusqlite", "tarn-guest", "tarn-store"} <= components.keys()
    assert not {"proptest", "insta", "rstest"} & components.keys(), "crates of tests are not in the program"
    assert components["tokio"]["hashes"][0]["alg"] == "SHA-256" and components["tokio"]["licenses"]
    known = {each["bom-ref"] for each in listed["components"]} | {listed["metadata"]["component"]["bom-ref"]}
    assert all(set(each["dependsOn"]) <= known for each in listed["dependencies"])


@needs_root
def test_package_life_cycle(package, tmp_path):
    """In a small Debian the package is installed, upgraded and removed: changes of the configuration survive the upgrade,
    and the data survives all of it."""
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-xf", "-"], input=debian(), check=True)
    run("mknod", "-m", "666", root / "dev/null", "c", "1", "3")

    def inside(*command, code=0):
        # In namespaces of its own, so that nothing that it starts or mounts is left.
        line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "chroot", root, *command]
        return run(*line, code=code, environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})

    def install(deb: Path):
        (root / "tarn.deb").write_bytes(deb.read_bytes())
        # The small Debian has no package mirror: the other packages that the engine needs are left out.
        return inside("dpkg", "--force-depends", "--install", "/tarn.deb")

    assert "systemctl enable --now tarn" in install(package)
    assert inside("tarn", "--version") == tarn("--version").stdout
    assert "valid" in inside("tarn", "serve", "--check", "--config", "/etc/tarn/tarn.toml")
    assert not (root / "var/lib/tarn").exists(), "the installation starts nothing"
    (root / "var/lib/tarn").mkdir(mode=0o700)
    data = root / "var/lib/tarn/tarn.db"
    data.write_text("data")
    config = root / "etc/tarn/tarn.toml"
    config.write_text(config.read_text() + 'log = "debug"\n')
    assert "systemctl enable" not in install(build_deb(tmp_path, "99.0-1")), "an upgrade changes nothing that is enabled"
    assert "99.0-1" in inside("dpkg-query", "--show", "tarn")
    assert config.read_text().endswith('log = "debug"\n') and data.read_text() == "data"
    inside("dpkg", "--remove", "tarn")
    assert not (root / "usr/bin/tarn").exists() and config.exists() and data.read_text() == "data"
    assert "/var/lib/tarn stays" in inside("dpkg", "--purge", "tarn")
    assert not config.exists() and data.read_text() == "data"
    left = [str(path.relative_to(root)) for path in root.rglob("*tarn*") if not path.is_relative_to(root / "var")]
    assert left == ["tarn.deb"], left
