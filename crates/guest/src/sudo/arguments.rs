//! The command line of `sudo`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

const USAGE: &str = "usage: sudo [-EHikKlnsSvV] [-D directory] [-g group] [-u user] [VAR=value] [command [arguments]]";

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    /// Run a program.
    #[default]
    Run,
    /// Say what the caller may do.
    List,
    /// See whether the caller may do anything, or forget that he did: there is no password, so nothing to remember.
    Nothing,
    /// Say which version this is.
    Version,
    /// Show how it is used.
    Help,
}

/// A command line that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) action: Action,
    /// Who the program runs as.
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) directory: Option<OsString>,
    /// Keep the whole environment.
    pub(super) preserve: bool,
    /// Keep these variables.
    pub(super) preserve_names: Vec<String>,
    /// Run a login shell, or the command in one.
    pub(super) login: bool,
    /// Run the caller's shell, or the command in it.
    pub(super) shell: bool,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) command: Vec<OsString>,
}

/// Understands a command line; the error is for a person.
pub(super) fn parse(arguments: &[OsString]) -> Result<Request, String> {
    let mut request = Request::default();
    let mut rest = arguments.iter();
    let mut command = Vec::new();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        match bytes {
            b"--" => {
                command.extend(rest.cloned());
                break;
            }
            [b'-', b'-', long @ ..] => long_option(&mut request, long, &mut rest)?,
            [b'-', _, ..] => short_options(&mut request, &bytes[1..], &mut rest)?,
            _ => {
                command.push(argument.clone());
                command.extend(rest.cloned());
                break;
            }
        }
    }
    let variables = command.iter().take_while(|word| variable(word).is_some()).count();
    request.variables = command.drain(..variables).filter_map(|word| variable(&word)).collect();
    request.command = command;
    check(&request)?;
    Ok(request)
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

fn short_options(request: &mut Request, mut letters: &[u8], rest: &mut Rest<'_>) -> Result<(), String> {
    while let [letter, following @ ..] = letters {
        letters = following;
        match letter {
            // There is no password to be asked for, and no cache of one.
            b'n' | b'S' | b'A' | b'B' | b'H' => {}
            b'E' => request.preserve = true,
            b'i' => request.login = true,
            b's' => request.shell = true,
            b'k' | b'K' | b'v' => request.action = nothing(request.action),
            b'l' => request.action = Action::List,
            b'V' => request.action = Action::Version,
            b'h' => request.action = Action::Help,
            b'u' | b'g' | b'p' | b'D' | b'C' | b'T' | b'U' => {
                let value = match following {
                    [] => rest.next().cloned().ok_or_else(|| needs_value(&format!("-{}", char::from(*letter))))?,
                    _ => OsString::from_vec(following.to_vec()),
                };
                return take_value(request, *letter, value);
            }
            other => return Err(format!("invalid option -- '{}'\n{USAGE}", char::from(*other).escape_default())),
        }
    }
    Ok(())
}

fn long_option(request: &mut Request, option: &[u8], rest: &mut Rest<'_>) -> Result<(), String> {
    let text = String::from_utf8_lossy(option).into_owned();
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
        None => (text, None),
    };
    let letter = match name.as_str() {
        "preserve-env" => {
            match value {
                Some(names) => request.preserve_names.extend(names.to_string_lossy().split(',').map(Into::into)),
                None => request.preserve = true,
            }
            return Ok(());
        }
        "user" => b'u',
        "group" => b'g',
        "prompt" => b'p',
        "chdir" => b'D',
        "close-from" => b'C',
        "command-timeout" => b'T',
        "other-user" => b'U',
        "non-interactive" | "stdin" | "askpass" | "bell" | "set-home" => b'n',
        "login" => b'i',
        "shell" => b's',
        "reset-timestamp" | "remove-timestamp" | "validate" => b'v',
        "list" => b'l',
        "version" => b'V',
        "help" => b'h',
        _ => return Err(format!("unrecognized option '--{}'\n{USAGE}", name.escape_default())),
    };
    if !b"ugpDCTU".contains(&letter) {
        return short_options(request, &[letter], rest);
    }
    let value = match value {
        Some(value) => value,
        None => rest.next().cloned().ok_or_else(|| needs_value(&format!("--{name}")))?,
    };
    take_value(request, letter, value)
}

fn take_value(request: &mut Request, letter: u8, value: OsString) -> Result<(), String> {
    let text = || value.to_str().map(str::to_owned).ok_or_else(|| "a name is not text".to_owned());
    match letter {
        b'u' => request.user = Some(text()?),
        b'g' => request.group = Some(text()?),
        b'D' => request.directory = Some(value),
        b'C' | b'T' => return Err("closing files and ending commands by time are not supported".into()),
        // The words of a question that is never asked, and whose rights are listed: everybody's are the same.
        _ => {}
    }
    Ok(())
}

fn needs_value(option: &str) -> String {
    format!("option requires an argument -- '{}'\n{USAGE}", option.trim_start_matches('-'))
}

/// `-k` beside a command only forgets, and the command runs.
fn nothing(action: Action) -> Action {
    if action == Action::Run { Action::Nothing } else { action }
}

fn variable(word: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&bytes[..at], &bytes[at + 1..]);
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.iter().all(good) && !name[0].is_ascii_digit();
    is_name.then(|| (OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
}

fn check(request: &Request) -> Result<(), String> {
    if request.login && request.shell {
        return Err("you may not specify both the -i and -s options".into());
    }
    if request.login && request.preserve {
        return Err("you may not specify both the -i and -E options".into());
    }
    let needs_command = request.action == Action::Run && !request.login && !request.shell;
    if needs_command && request.command.is_empty() {
        return Err(format!("a command is required\n{USAGE}"));
    }
    Ok(())
}

/// How it is used.
pub(super) fn usage() -> &'static str {
    USAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn command_lines() {
        let run = |command: &str| Request {
            command: command.split_whitespace().map(OsString::from).collect(),
            ..Request::default()
        };
        let user = |name: &str, command: &str| Request { user: Some(name.into()), ..run(command) };
        let cases = [
            ("id", run("id")),
            ("-n id -u", run("id -u")),
            ("-- -x", run("-x")),
            ("-u www id", user("www", "id")),
            ("-uwww id", user("www", "id")),
            ("-nu www id", user("www", "id")),
            ("--user=www id", user("www", "id")),
            ("--user www id", user("www", "id")),
            ("-g wheel id", Request { group: Some("wheel".into()), ..run("id") }),
            ("-p x -S id", run("id")),
            ("-E id", Request { preserve: true, ..run("id") }),
            ("--preserve-env id", Request { preserve: true, ..run("id") }),
            ("--preserve-env=A,B id", Request { preserve_names: vec!["A".into(), "B".into()], ..run("id") }),
            (
                "A=1 B=x=y id C=3",
                Request { variables: vec![("A".into(), "1".into()), ("B".into(), "x=y".into())], ..run("id C=3") },
            ),
            ("-D /tmp pwd", Request { directory: Some("/tmp".into()), ..run("pwd") }),
            ("-i", Request { login: true, ..run("") }),
            ("-iu www", Request { login: true, ..user("www", "") }),
            ("-s echo a", Request { shell: true, ..run("echo a") }),
            ("-H id", run("id")),
            ("-v", Request { action: Action::Nothing, ..run("") }),
            ("-k", Request { action: Action::Nothing, ..run("") }),
            ("-l", Request { action: Action::List, ..run("") }),
            ("-V", Request { action: Action::Version, ..run("") }),
            ("-", run("-")),
        ];
        for (line, expected) in cases {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn refused_command_lines() {
        for line in ["", "-u", "--user", "-x id", "--nonsense id", "-is", "-iE", "A=1", "-C 3 id", "-e file", "-u www"]
        {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
