//! `sudo`: a setuid copy of the program, in a mount namespace with its own users.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use crate::fixture::{GUEST, is_root};

/// A directory with a setuid copy of the program and the user files.
struct Sandbox(tempfile::TempDir);

impl Sandbox {
    fn new() -> Option<Sandbox> {
        if !is_root() {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("sudo-").tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::copy(GUEST, at("sudo")).unwrap();
        std::fs::set_permissions(at("sudo"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        let users = "root:x:0:0::/root:/bin/bash\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n\
            member:x:1001:1001::/:/bin/sh\nother:x:1002:1002::/:/bin/sh\nwww:x:33:33::/var/www:/bin/sh\n";
        std::fs::write(at("passwd"), users).unwrap();
        std::fs::write(at("group"), "root:x:0:\nsudo:x:27:member\nwww:x:33:\nvideo:x:44:www\n").unwrap();
        Some(Sandbox(directory))
    }

    /// Runs `sudo` with arguments as a user, with environment variables that must not be passed on.
    fn sudo(&self, uid: u32, arguments: &[&str]) -> Output {
        let at = |name: &str| self.0.path().join(name).display().to_string();
        let script = "mount --bind $1 /etc/passwd && mount --bind $2 /etc/group && shift 2 && \
            exec setpriv --reuid $1 --regid $1 --clear-groups -- env LD_PRELOAD=/x KEPT=1 TERM=xterm ${@:2}";
        Command::new("unshare")
            .args(["--mount", "bash", "-c", script, "bash", &at("passwd"), &at("group"), &uid.to_string(), &at("sudo")])
            .args(arguments)
            .output()
            .unwrap()
    }

    fn output_of(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.sudo(uid, arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn error_of(&self, uid: u32, arguments: &[&str]) -> String {
        let output = self.sudo(uid, arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
    }
}

/// The user and the members of the group may run programs as any user.
#[test]
fn user_and_group_members_may_use_sudo() {
    let Some(sandbox) = Sandbox::new() else { return };
    assert_eq!(sandbox.output_of(1000, &["id", "-u"]), "0");
    assert_eq!(sandbox.output_of(1001, &["-n", "id", "-u"]), "0");
    assert_eq!(sandbox.output_of(0, &["id", "-u"]), "0");
    assert_eq!(sandbox.output_of(1000, &["-u", "www", "id", "-G"]), "33 44");
    assert_eq!(sandbox.output_of(1000, &["-u", "#33", "id", "-u"]), "33");
    assert_eq!(sandbox.output_of(1000, &["-u", "www", "-g", "video", "id", "-g"]), "44");
    assert_eq!(sandbox.output_of(1000, &["id", "-ru"]), "0");
    assert_eq!(sandbox.output_of(1000, &["-v"]), "");
}

/// Other users and invalid requests are refused.
#[test]
fn other_users_and_mistakes_are_refused() {
    let Some(sandbox) = Sandbox::new() else { return };
    assert_eq!(sandbox.error_of(1002, &["id"]), "sudo: other is not allowed to run sudo here");
    assert_eq!(sandbox.error_of(4711, &["id"]), "sudo: you do not exist in the passwd database");
    assert_eq!(sandbox.error_of(1000, &["no-such-program"]), "sudo: no-such-program: command not found");
    assert_eq!(sandbox.error_of(1000, &["-u", "nobody-here", "id"]), "sudo: unknown user nobody-here");
    let output = Command::new("setpriv").args(["--reuid", "65534", "--", GUEST, "sudo", "id"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("setuid bit"), "{output:?}");
}

/// The setuid copy can only act as sudo.
#[test]
fn setuid_copy_is_only_sudo() {
    let Some(sandbox) = Sandbox::new() else { return };
    std::fs::rename(sandbox.0.path().join("sudo"), sandbox.0.path().join("guest")).unwrap();
    std::os::unix::fs::symlink("guest", sandbox.0.path().join("sudo")).unwrap();
    let other_name = sandbox.0.path().join("guest").display().to_string();
    let arguments = ["--reuid", "1002", "--regid", "1002", "--clear-groups", "--", &other_name];
    for mode in [&["sftp-server"][..], &["open-socket", "connect", "/run/x"], &["--control", "/tmp/x"]] {
        let output =
            Command::new("setpriv").args(arguments).args(mode).stdin(std::process::Stdio::null()).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.starts_with("sudo: "), "{mode:?}: {words}");
    }
}

/// The environment is built from scratch.
#[test]
fn sudo_rebuilds_the_environment() {
    let Some(sandbox) = Sandbox::new() else { return };
    let text = sandbox.output_of(1000, &["A=b", "env"]);
    for line in [
        "HOME=/root",
        "USER=root",
        "SUDO_USER=ubuntu",
        "SUDO_UID=1000",
        "TERM=xterm",
        "A=b",
        "SUDO_COMMAND=/usr/bin/env",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    assert!(!text.contains("LD_PRELOAD") && !text.contains("KEPT"), "{text}");
    assert!(sandbox.output_of(1000, &["-E", "env"]).contains("KEPT=1"));
    assert!(sandbox.output_of(1000, &["--preserve-env=KEPT", "env"]).contains("KEPT=1"));
}

/// Shells are started as requested.
#[test]
fn sudo_starts_shells() {
    let Some(sandbox) = Sandbox::new() else { return };
    assert_eq!(sandbox.output_of(1000, &["-s", "printf", "%s", "a;id"]), "a;id");
    assert_eq!(sandbox.output_of(1000, &["-i", "pwd"]), "/root");
    assert_eq!(sandbox.output_of(1000, &["-D", "/usr", "pwd"]), "/usr");
}
