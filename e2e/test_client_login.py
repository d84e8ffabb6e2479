"""`tarn login`: stored keys, profiles, and the precedence of keys."""

import signal
import stat
import termios

import pytest

from support import Server

OTHERS = {"TENSORPOOL_KEY": None, "TENSORPOOL_ENGINE": None}


def profiles(tarn):
    """The file with the stored keys."""
    return tarn.home / ".config/tarn/profiles.toml"


def test_login_stores_key_privately(tarn, server):
    """A login stores the key in a file that only its owner can read."""
    said = tarn(f"login --stdin --engine {server.url}", answer=f"{server.key}\n", **OTHERS).text
    assert "admin@localhost" in said and server.url in said and server.key not in said
    assert stat.S_IMODE(profiles(tarn).stat().st_mode) == 0o600
    assert stat.S_IMODE(profiles(tarn).parent.stat().st_mode) == 0o700
    assert "admin@localhost" in tarn("me", **OTHERS).text
    assert [path.name for path in profiles(tarn).parent.iterdir()] == ["profiles.toml"], "nothing else is left"


def test_login_json_and_xdg_config_home(tarn, server, tmp_path):
    """A login prints JSON, and stores the key below `XDG_CONFIG_HOME`."""
    place = tmp_path / "configuration"
    body = tarn.json("login --stdin", answer=server.key, TENSORPOOL_KEY=None, XDG_CONFIG_HOME=place)
    assert body["email"] == "admin@localhost"
    assert (place / "tarn/profiles.toml").exists() and not profiles(tarn).exists()
    tarn("me", XDG_CONFIG_HOME=place, **OTHERS)


def test_admin_login_removes_key_file(tarn, server):
    """`login --admin` saves the key of the data directory and removes its file; a login that fails leaves it."""
    file, key = server.data / "admin.key", server.key
    tarn(f"login --admin {server.data} --engine http://127.0.0.1:1", code=1, **OTHERS)
    assert file.exists() and not profiles(tarn).exists()
    said = tarn(f"login --admin {server.data} --engine {server.url}", **OTHERS).text
    assert "admin@localhost" in said and key in profiles(tarn).read_text() and not file.exists()
    assert "admin key reset" in tarn(f"login --admin {server.data}", code=1, key=key, **OTHERS).errors
    assert "admin@localhost" in tarn("me", key=key, **OTHERS).text


def test_typed_key_is_not_echoed(tarn, server):
    """A key that is typed at the prompt is not echoed."""
    with tarn.terminal(f"login --engine {server.url}", **OTHERS) as terminal:
        terminal.read_until(f"API key for {server.url}: ")
        terminal.type(f"{server.key}\n")
        shown = terminal.wait_for_end()
    assert "admin@localhost" in shown and server.key not in shown
    assert server.key in profiles(tarn).read_text()


def test_ctrl_c_at_prompt_restores_terminal(tarn, server):
    """Ctrl-C at the prompt restores the terminal and stores nothing."""
    with tarn.terminal("login", **OTHERS) as terminal:
        terminal.read_until("API key for http://127.0.0.1:7070: ")
        terminal.type("tp-half\x03")
        # The client ends by the signal itself, or handles it and exits.
        terminal.wait_for_end(130, -signal.SIGINT)
        # A new terminal echoes.
        assert termios.tcgetattr(terminal.master)[3] & termios.ECHO
    assert not profiles(tarn).exists()


def test_invalid_key_is_not_stored(tarn, server):
    """An invalid key is refused and not stored."""
    said = tarn("login --stdin", answer="tp-nonsense\n", code=1)
    assert "does not accept the API key" in said.errors
    assert tarn.json("login --stdin", answer="tp-nonsense\n", code=1)["code"] == "invalid_key"
    assert "no API key" in tarn("login --stdin", answer="\n", code=2).errors
    tarn("login --stdin", answer="tp-\u00fc\a\n", code=1)
    assert "--stdin" in tarn("login", code=2).errors
    assert "--stdin" in tarn("login --no-input", code=2).errors
    assert not profiles(tarn).exists()
    with tarn.terminal("login --no-input") as terminal:
        assert "--stdin" in terminal.wait_for_end(2)


def test_second_login_replaces_key(tarn, server, user):
    """A second login replaces the stored key."""
    for key in (server.key, user("ann@example.org")):
        tarn("login --stdin", answer=key, TENSORPOOL_KEY=None)
    assert "ann@example.org" in tarn("me", **OTHERS).text
    assert server.key not in profiles(tarn).read_text()
    assert stat.S_IMODE(profiles(tarn).stat().st_mode) == 0o600


def test_profiles_select_engine_and_key(tarn, server, tmp_path, user):
    """Profiles select engine and key, by flag, by variable or as the last one used."""
    with Server(tmp_path / "other") as other:
        tarn("login --stdin --profile home", answer=server.key)
        tarn(f"login --stdin --profile work --engine {other.url}", answer=other.key, TENSORPOOL_KEY=None)
        tarn("cluster create 1xCPU --name at-home --profile home", **OTHERS)
        tarn("cluster create 1xCPU --name at-work --profile work", **OTHERS)
        assert "at-work" in tarn("cluster list", **OTHERS).text, "the last profile that was named is in use"
        assert "at-home" in tarn("cluster list --profile home", **OTHERS).text
        assert "at-home" in tarn("cluster list", TARN_PROFILE="home", **OTHERS).text
        assert "at-work" in tarn("cluster list --profile work", TARN_PROFILE="home", **OTHERS).text
        assert "at-work" in tarn("cluster list --profile work").text, "a named profile selects its own key and engine"
    said = tarn("cluster list --profile school", code=3, **OTHERS).errors
    assert "tarn login --profile school" in said
    assert "school" in tarn.json("me --profile school", code=3)["message"]


def test_key_precedence(tarn, server, user):
    """A named profile comes first, then the environment, then `.env`, then the current profile."""
    keys = {name: user(f"{name}@example.org") for name in ("profile", "file", "environment")}
    said = tarn("login --stdin", answer=keys["profile"], loud=True).errors
    assert "TENSORPOOL_KEY" in said and "takes precedence" in said
    assert "profile@" in tarn("me", TENSORPOOL_KEY=None).text
    place = tarn.home / "project"
    place.mkdir()
    (place / ".env").write_text(f"OTHER=1\nTENSORPOOL_KEY='{keys['file']}'\nTENSORPOOL_KEY=tp-second\n")
    assert "file@" in tarn("me", where=place, TENSORPOOL_KEY=None).text
    (tarn.home / "stale").mkdir()
    (tarn.home / "stale/.env").write_text("TENSORPOOL_KEY=tp-stale\n")
    assert "file .env" in tarn("me", where=tarn.home / "stale", TENSORPOOL_KEY=None, code=1).errors, "the error names the source of the key"
    assert "profile@" in tarn("me", where=tarn.home, TENSORPOOL_KEY=None).text, "only the working directory counts"
    assert "environment@" in tarn("me", where=place, key=keys["environment"]).text
    assert "profile@" in tarn("me --profile default", where=place, key=keys["environment"]).text
    assert "file@" in tarn("me", where=place, TENSORPOOL_KEY="").text, "an empty variable counts as unset"


@pytest.mark.parametrize("line", ["TENSORPOOL_KEY={}", 'TENSORPOOL_KEY="{}"', "TENSORPOOL_KEY = {}  ", "TENSORPOOL_KEY={}\r"])
def test_env_file_key_formats(tarn, server, line):
    """A key in `.env` may be quoted, padded or end in a carriage return."""
    (tarn.home / ".env").write_text(line.format(server.key) + "\n")
    tarn("me", TENSORPOOL_KEY=None)


def test_engine_precedence(tarn, server):
    """`--engine` comes before the environment, which comes before the profile."""
    nowhere = "http://127.0.0.1:1"
    tarn("me --engine", f"{server.url}/", TENSORPOOL_ENGINE=nowhere)
    tarn("--engine", server.url, "me", TENSORPOOL_ENGINE=nowhere)
    assert nowhere in tarn("me", TENSORPOOL_ENGINE=nowhere, code=1).errors
    tarn("login --stdin", answer=server.key)
    tarn("me", **OTHERS)
    assert nowhere in tarn("me", TENSORPOOL_ENGINE=nowhere, code=1).errors, "the environment comes before a profile"
    tarn("me", TENSORPOOL_ENGINE=f" {server.url}/ ")


def test_damaged_profiles_file_is_named(tarn):
    """The error names a damaged profiles file; a key in the environment works without it."""
    profiles(tarn).parent.mkdir(parents=True)
    profiles(tarn).write_text("current = [")
    assert str(profiles(tarn)) in tarn("me", TENSORPOOL_KEY=None, code=1).errors
    tarn("me")
