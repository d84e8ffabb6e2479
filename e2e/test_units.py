"""The unit for systemd and the profile for AppArmor are valid. This host enforces neither, so only their form is checked."""

import shutil
import subprocess
from pathlib import Path

import pytest

OPERATING = Path(__file__).parents[1] / "docs/operating"


def run(*command) -> str:
    """What a command reports; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def verify_unit(text: str, directory: Path) -> str:
    """What systemd says about a unit."""
    unit = directory / "tarn.service"
    unit.write_text(text.replace("/usr/local/bin/tarn", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_unit_is_valid(tmp_path):
    """systemd knows every key and value of the unit, and would report one that it does not know."""
    unit = (OPERATING / "tarn.service").read_text()
    for key in ("ProtectHome=", "ProtectKernelModules=", "LockPersonality=", "SystemCallFilter=", "LoadCredential=", "LimitCORE=0",
                "Type=notify", "WatchdogSec=", "StartLimitIntervalSec=0"):  # fmt: skip
        assert key in unit
    # The key of the comment is valid as well.
    unit = unit.replace("#LoadCredential", "LoadCredential")
    assert "tarn.service" not in verify_unit(unit, tmp_path)
    assert "tarn.service" in verify_unit(unit.replace("ProtectHome=yes", "ProtectHome=perhaps"), tmp_path)


PARSER = shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")


@pytest.mark.skipif(not PARSER, reason="AppArmor is not installed")
def test_apparmor_profile_is_valid(tmp_path):
    """AppArmor's parser accepts the profile, and refuses one with an unknown capability."""
    profile = OPERATING / "tarn.apparmor"
    run(PARSER, "--skip-kernel-load", "--skip-cache", profile)
    broken = tmp_path / "broken"
    broken.write_text(profile.read_text().replace("sys_boot", "sys_shoe"))
    assert subprocess.run([PARSER, "--skip-kernel-load", "--skip-cache", broken], capture_output=True).returncode
