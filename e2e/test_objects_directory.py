"""An object directory belongs to one installation: an engine never opens another's, because it would remove its
files."""

import subprocess

from objects import enable, put, read
from support import Server

LARGE = b"x" * 100_000


def refusal(server: Server) -> str:
    """The error of an engine that refuses to start."""
    done = subprocess.run(server.command, env=server.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    return done.stderr


def configured(tmp_path, name: str, directory) -> Server:
    """An engine with its objects in another directory."""
    config = tmp_path / f"{name}.toml"
    config.write_text(f'[object_storage]\ndirectory = "{directory}"\n')
    return Server(tmp_path / name, "--config", config)


def test_directory_belongs_to_one_installation(tmp_path):
    """An engine refuses an object directory that is not its own."""
    with Server(tmp_path / "first") as first:
        s3 = enable(first).client()
        s3.create_bucket(Bucket="kept")
        put(s3, "kept", "key", body=LARGE)
        assert "another installation" in refusal(configured(tmp_path, "second", tmp_path / "first" / "objects"))
        assert read(s3, "kept", "key") == LARGE
        first.stop()
    (tmp_path / "empty").mkdir()
    assert "are not in" in refusal(configured(tmp_path, "first", tmp_path / "empty"))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "precious").write_text("not ours")
    assert "not empty" in refusal(configured(tmp_path, "third", tmp_path / "foreign"))
    (tmp_path / "first" / "objects").rename(tmp_path / "moved")
    with configured(tmp_path, "first", "../moved") as moved:
        assert read(enable(moved).client(), "kept", "key") == LARGE
        moved.stop()
