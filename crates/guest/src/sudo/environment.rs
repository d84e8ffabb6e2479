//! The environment of a program that `sudo` runs: built from scratch, with few variables of the caller.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use super::arguments::SudoRequest;
use crate::users::Account;

/// The path for programs; the caller's own path is not trusted.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of the caller that are always kept: they affect how things look, not what is run.
const KEPT: [&str; 8] = ["TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "LS_COLORS", "DISPLAY", "XAUTHORITY"];

/// Variables that are never kept, even if the caller asks for all: they make the loader or a shell run code.
const NEVER_KEPT: [&str; 12] = [
    "PATH",
    "IFS",
    "ENV",
    "BASH_ENV",
    "CDPATH",
    "GLOBIGNORE",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "GCONV_PATH",
    "NLSPATH",
    "HOSTALIASES",
];

/// Builds the environment from the caller's.
pub(super) fn build_sudo_environment(
    request: &SudoRequest,
    caller: &Account,
    target: &Account,
    given: impl Iterator<Item = (OsString, OsString)>,
    command: &OsStr,
) -> BTreeMap<OsString, OsString> {
    let mut all: BTreeMap<OsString, OsString> = given.filter(|(name, _)| is_kept(request, name)).collect();
    let has_home = request.preserve && all.contains_key(OsStr::new("HOME"));
    let mut set = |name: &str, value: OsString| all.insert(name.into(), value);
    set("PATH", PATH.into());
    set("USER", target.name.clone().into());
    set("LOGNAME", target.name.clone().into());
    set("SHELL", target.shell.clone().into());
    if !has_home {
        set("HOME", target.home.clone().into());
    }
    set("SUDO_USER", caller.name.clone().into());
    set("SUDO_UID", caller.uid.to_string().into());
    set("SUDO_GID", caller.gid.to_string().into());
    set("SUDO_COMMAND", command.to_owned());
    // A caller that may become any user may also set any variable.
    all.extend(request.variables.iter().cloned());
    all
}

fn is_kept(request: &SudoRequest, name: &OsStr) -> bool {
    let Some(text) = name.to_str() else { return false };
    let is_dangerous = text.starts_with("LD_") || text.starts_with("BASH_FUNC_") || NEVER_KEPT.contains(&text);
    let is_wanted = request.preserve || request.preserve_names.iter().any(|wanted| wanted == text);
    let is_harmless = KEPT.contains(&text) || text.starts_with("LC_");
    !is_dangerous && (is_wanted || is_harmless) && !name.as_bytes().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(request: &SudoRequest) -> String {
        let account = |name: &str, uid| Account {
            name: name.into(),
            uid,
            gid: uid,
            groups: vec![uid],
            home: format!("/home/{name}").into(),
            shell: "/bin/sh".into(),
        };
        let given = [
            ("LD_PRELOAD", "x"),
            ("PATH", "/evil"),
            ("TERM", "xterm"),
            ("LC_ALL", "C"),
            ("SECRET", "s"),
            ("HOME", "/h"),
        ];
        let given = given.into_iter().map(|(name, value)| (name.into(), value.into()));
        let all = build_sudo_environment(
            request,
            &account("ubuntu", 1000),
            &account("root", 0),
            given,
            OsStr::new("/bin/id"),
        );
        all.iter().map(|(name, value)| format!("{}={} ", name.display(), value.display())).collect()
    }

    /// Few variables of the caller are kept.
    #[test]
    fn environment_keeps_little() {
        let text = built(&SudoRequest::default());
        assert!(
            text.contains("TERM=xterm ") && text.contains("LC_ALL=C ") && text.contains("HOME=/home/root "),
            "{text}"
        );
        assert!(
            text.contains("SUDO_USER=ubuntu SUDO_UID=1000") || text.contains("SUDO_UID=1000 SUDO_USER=ubuntu "),
            "{text}"
        );
        assert!(!text.contains("LD_PRELOAD") && !text.contains("/evil") && !text.contains("SECRET"), "{text}");
    }

    /// Dangerous variables are dropped even if the caller keeps all.
    #[test]
    fn dangerous_variables_are_dropped() {
        let text = built(&SudoRequest { preserve: true, ..SudoRequest::default() });
        assert!(text.contains("SECRET=s ") && text.contains("HOME=/h "), "{text}");
        assert!(!text.contains("LD_PRELOAD") && !text.contains("/evil"), "{text}");
    }
}
