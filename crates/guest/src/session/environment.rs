//! The environment variables of a session's program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use tarn_link::{Image, Session};

use crate::users::Account;
use crate::users::images;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The directory of CUDA's programs, if the image has them.
const CUDA: &str = "/usr/local/cuda/bin";

/// The limits on the variables of a client: their number, and the length of a value.
const MAX_VARIABLES: usize = 256;
const MAX_LENGTH: usize = 64 << 10;

/// The variables for the devices of the instance; the engine writes the file at the start.
const DEVICES: &str = "run/tarn/environment";

/// The maximum length of `/etc/environment` that is read.
const MAX_FILE: u64 = 64 << 10;

/// Names that a client may not set: they identify the user, or make the shell or the loader run code.
const REFUSED: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "MAIL",
    "IFS",
    "ENV",
    "BASH_ENV",
    "CDPATH",
    "GLOBIGNORE",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "GCONV_PATH",
    "NLSPATH",
    "LOCPATH",
    "HOSTALIASES",
    "ZDOTDIR",
];

/// Prefixes of such names.
const REFUSED_PREFIXES: [&str; 3] = ["LD_", "BASH_FUNC_", "SSH_"];

/// Builds all variables. In increasing precedence: the system, the image, the devices, the client, and the guest.
pub(crate) fn build_environment(
    root: &Path,
    account: &Account,
    image: Option<&Image>,
    session: &Session,
    terminal: Option<&str>,
    agent: Option<&Path>,
) -> BTreeMap<OsString, OsString> {
    let mut all: BTreeMap<String, OsString> = BTreeMap::new();
    let path = if root.join(&CUDA[1..]).is_dir() { format!("{PATH}:{CUDA}") } else { PATH.to_owned() };
    all.insert("PATH".into(), path.into());
    all.insert("LANG".into(), "C.UTF-8".into());
    let file = crate::filesystem::read_bounded(&root.join("etc/environment"), MAX_FILE).unwrap_or_default();
    let file = String::from_utf8_lossy(&file).into_owned();
    all.extend(file.lines().filter_map(parse_environment_line).map(|(name, value)| (name, value.into())));
    all.extend(
        image.into_iter().flat_map(images::image_variables).map(|(name, value)| (name.to_owned(), value.into())),
    );
    all.extend(device_variables(root));
    let wanted =
        session.environment.iter().take(MAX_VARIABLES).filter(|(name, value)| is_client_variable_allowed(name, value));
    all.extend(wanted.map(|(name, value)| (name.clone(), value.into())));
    all.insert("HOME".into(), account.home.clone().into());
    all.insert("USER".into(), account.name.clone().into());
    all.insert("LOGNAME".into(), account.name.clone().into());
    all.insert("SHELL".into(), account.shell.clone().into());
    if let (Some(pty), Some(name)) = (&session.pty, terminal) {
        let term = if is_variable_value(&pty.term) && !pty.term.is_empty() { pty.term.as_str() } else { "dumb" };
        all.insert("TERM".into(), term.into());
        all.insert("SSH_TTY".into(), name.into());
    }
    if let Some((client, client_port, server, server_port)) = &session.connection
        && is_variable_value(client)
        && is_variable_value(server)
    {
        all.insert("SSH_CONNECTION".into(), format!("{client} {client_port} {server} {server_port}").into());
        all.insert("SSH_CLIENT".into(), format!("{client} {client_port} {server_port}").into());
    }
    if let Some(agent) = agent {
        all.insert("SSH_AUTH_SOCK".into(), agent.into());
    }
    all.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// Reads the variables of the devices, if there are any. They may set loader paths.
fn device_variables(root: &Path) -> BTreeMap<String, OsString> {
    let file = crate::filesystem::read_bounded(&root.join(DEVICES), MAX_FILE).unwrap_or_default();
    let file = String::from_utf8_lossy(&file).into_owned();
    let lines = file.lines().filter_map(|line| line.split_once('='));
    let good = lines.filter(|(name, value)| is_variable_name(name) && is_variable_value(value));
    good.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// Returns whether a client may set a variable.
fn is_client_variable_allowed(name: &str, value: &str) -> bool {
    let refused = REFUSED.contains(&name) || REFUSED_PREFIXES.iter().any(|beginning| name.starts_with(beginning));
    is_variable_name(name) && is_variable_value(value) && !refused
}

fn is_variable_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.len() <= 256 && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn is_variable_value(value: &str) -> bool {
    value.len() <= MAX_LENGTH && !value.contains('\0')
}

/// Parses a line of `/etc/environment`: a name, `=`, and a value that may be quoted.
fn parse_environment_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    (is_variable_name(name) && is_variable_value(value) && !name.starts_with("LD_"))
        .then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client may set harmless variables only.
    #[test]
    fn client_variables_are_filtered() {
        for name in
            ["LANG", "LC_ALL", "TERM", "COLORTERM", "TP_KEY", "TARN_X", "NO_COLOR", "EDITOR", "GIT_AUTHOR", "_a1"]
        {
            assert!(is_client_variable_allowed(name, "x"), "{name}");
        }
        for name in [
            "",
            "1A",
            "A B",
            "A=B",
            "Ä",
            "LD_PRELOAD",
            "PATH",
            "HOME",
            "BASH_ENV",
            "IFS",
            "SSH_TTY",
            "BASH_FUNC_x",
            "ENV",
        ] {
            assert!(!is_client_variable_allowed(name, "x"), "{name}");
        }
        assert!(!is_client_variable_allowed("A", "a\0b"));
    }

    /// The variables of devices are read from their file.
    #[test]
    fn device_variables_are_read() {
        let root = tempfile::tempdir().unwrap();
        assert!(device_variables(root.path()).is_empty());
        std::fs::create_dir_all(root.path().join("run/tarn")).unwrap();
        let text = "LD_LIBRARY_PATH=/usr/lib/a:/usr/lib/b\nNVIDIA_VISIBLE_DEVICES=void\nnonsense\n1=2\nA=b=c\n";
        std::fs::write(root.path().join(DEVICES), text).unwrap();
        let found = device_variables(root.path());
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"]);
        assert_eq!(found["A"], "b=c");
    }

    /// Lines of `/etc/environment` are parsed.
    #[test]
    fn environment_lines_parse() {
        let line = |text| parse_environment_line(text).map(|(name, value)| format!("{name}={value}"));
        assert_eq!(line("A=b"), Some("A=b".into()));
        assert_eq!(line("  export A=\"b c\" "), Some("A=b c".into()));
        assert_eq!(line("A='b'"), Some("A=b".into()));
        for refused in ["# A=b", "A", "LD_PRELOAD=x", "A B=c", ""] {
            assert_eq!(line(refused), None, "{refused}");
        }
    }
}
