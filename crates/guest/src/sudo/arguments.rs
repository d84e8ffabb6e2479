//! The command line of `sudo`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

const USAGE: &str = "usage: sudo [-EHikKlnsSvV] [-D directory] [-g group] [-u user] [VAR=value] [command [arguments]]";

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Action {
    #[default]
    Run,
    /// List what the caller may do.
    List,
    /// Validate or reset the cached credentials: there is no password, so there is nothing to do.
    Validate,
    Version,
    Help,
}

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SudoRequest {
    pub(super) action: Action,
    /// The user to run the program as.
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) directory: Option<OsString>,
    pub(super) preserve: bool,
    pub(super) preserve_names: Vec<String>,
    /// Run a login shell, or the command in one.
    pub(super) login: bool,
    /// Run the caller's shell, or the command in it.
    pub(super) shell: bool,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) command: Vec<OsString>,
}

/// Parses a command line; the error is for a person.
pub(super) fn parse_arguments(arguments: &[OsString]) -> Result<SudoRequest, String> {
    let mut request = SudoRequest::default();
    let mut rest = arguments.iter();
    let mut command = Vec::new();
    while let Some(argument) = rest.next() {
        let bytes = argument.as_bytes();
        match bytes {
            b"--" => {
                command.extend(rest.cloned());
                break;
            }
            [b'-', b'-', long @ ..] => parse_long_option(&mut request, long, &mut rest)?,
            [b'-', _, ..] => parse_short_options(&mut request, &bytes[1..], &mut rest)?,
            _ => {
                command.push(argument.clone());
                command.extend(rest.cloned());
                break;
            }
        }
    }
    let variables = command.iter().take_while(|word| parse_variable(word).is_some()).count();
    request.variables = command.drain(..variables).filter_map(|word| parse_variable(&word)).collect();
    request.command = command;
    check_options(&request)?;
    Ok(request)
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

fn parse_short_options(request: &mut SudoRequest, mut letters: &[u8], rest: &mut Rest<'_>) -> Result<(), String> {
    while let [letter, following @ ..] = letters {
        letters = following;
        match letter {
            // There is no password, and no cache of one.
            b'n' | b'S' | b'A' | b'B' | b'H' => {}
            b'E' => request.preserve = true,
            b'i' => request.login = true,
            b's' => request.shell = true,
            b'k' | b'K' | b'v' => request.action = unless_action_chosen(request.action),
            b'l' => request.action = Action::List,
            b'V' => request.action = Action::Version,
            b'h' => request.action = Action::Help,
            b'u' | b'g' | b'p' | b'D' | b'C' | b'T' | b'U' => {
                let value = match following {
                    [] => {
                        rest.next().cloned().ok_or_else(|| missing_value_error(&format!("-{}", char::from(*letter))))?
                    }
                    _ => OsString::from_vec(following.to_vec()),
                };
                return set_value_option(request, *letter, value);
            }
            other => return Err(format!("invalid option -- '{}'\n{USAGE}", char::from(*other).escape_default())),
        }
    }
    Ok(())
}

fn parse_long_option(request: &mut SudoRequest, option: &[u8], rest: &mut Rest<'_>) -> Result<(), String> {
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
        _ => return Err(format!("unrecognized option '--{}'\n{USAGE}", tarn_base::plain(&name, 200))),
    };
    if !b"ugpDCTU".contains(&letter) {
        return parse_short_options(request, &[letter], rest);
    }
    let value = match value {
        Some(value) => value,
        None => rest.next().cloned().ok_or_else(|| missing_value_error(&format!("--{name}")))?,
    };
    set_value_option(request, letter, value)
}

fn set_value_option(request: &mut SudoRequest, letter: u8, value: OsString) -> Result<(), String> {
    let text = || value.to_str().map(str::to_owned).ok_or_else(|| "a name is not valid UTF-8".to_owned());
    match letter {
        b'u' => request.user = Some(text()?),
        b'g' => request.group = Some(text()?),
        b'D' => request.directory = Some(value),
        b'C' | b'T' => return Err("closing descriptors and command timeouts are not supported".into()),
        // The prompt is never shown, and the rights that are listed are the same for every user.
        _ => {}
    }
    Ok(())
}

fn missing_value_error(option: &str) -> String {
    format!("option requires an argument -- '{}'\n{USAGE}", option.trim_start_matches('-'))
}

/// `-k` with a command only resets the credentials, and the command runs.
fn unless_action_chosen(action: Action) -> Action {
    if action == Action::Run { Action::Validate } else { action }
}

fn parse_variable(word: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&bytes[..at], &bytes[at + 1..]);
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.iter().all(good) && !name[0].is_ascii_digit();
    is_name.then(|| (OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
}

fn check_options(request: &SudoRequest) -> Result<(), String> {
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

/// Returns the usage text.
pub(super) fn usage() -> &'static str {
    USAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<SudoRequest, String> {
        parse_arguments(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    /// Valid command lines are parsed.
    #[test]
    fn arguments_parse() {
        let run = |command: &str| SudoRequest {
            command: command.split_whitespace().map(OsString::from).collect(),
            ..SudoRequest::default()
        };
        let user = |name: &str, command: &str| SudoRequest { user: Some(name.into()), ..run(command) };
        let cases = [
            ("id", run("id")),
            ("-n id -u", run("id -u")),
            ("-- -x", run("-x")),
            ("-u www id", user("www", "id")),
            ("-uwww id", user("www", "id")),
            ("-nu www id", user("www", "id")),
            ("--user=www id", user("www", "id")),
            ("--user www id", user("www", "id")),
            ("-g wheel id", SudoRequest { group: Some("wheel".into()), ..run("id") }),
            ("-p x -S id", run("id")),
            ("-E id", SudoRequest { preserve: true, ..run("id") }),
            ("--preserve-env id", SudoRequest { preserve: true, ..run("id") }),
            ("--preserve-env=A,B id", SudoRequest { preserve_names: vec!["A".into(), "B".into()], ..run("id") }),
            (
                "A=1 B=x=y id C=3",
                SudoRequest { variables: vec![("A".into(), "1".into()), ("B".into(), "x=y".into())], ..run("id C=3") },
            ),
            ("-D /tmp pwd", SudoRequest { directory: Some("/tmp".into()), ..run("pwd") }),
            ("-i", SudoRequest { login: true, ..run("") }),
            ("-iu www", SudoRequest { login: true, ..user("www", "") }),
            ("-s echo a", SudoRequest { shell: true, ..run("echo a") }),
            ("-H id", run("id")),
            ("-v", SudoRequest { action: Action::Validate, ..run("") }),
            ("-k", SudoRequest { action: Action::Validate, ..run("") }),
            ("-l", SudoRequest { action: Action::List, ..run("") }),
            ("-V", SudoRequest { action: Action::Version, ..run("") }),
            ("-", run("-")),
        ];
        for (line, expected) in cases {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    /// Invalid command lines are rejected.
    #[test]
    fn arguments_reject_invalid_lines() {
        for line in ["", "-u", "--user", "-x id", "--nonsense id", "-is", "-iE", "A=1", "-C 3 id", "-e file", "-u www"]
        {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
