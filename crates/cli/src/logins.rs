//! How one gets into a machine. An engine says it as a command for `ssh`; it is never run, but taken apart into what it must be made
//! of, and everything else is refused. Pure.

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::output::text;

/// The way into one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    /// The ID of the machine.
    pub(crate) instance: String,
    /// Its host name.
    pub(crate) name: String,
    /// Whom to ask for.
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The key by which the other side is known: its kind and the key itself.
    pub(crate) host_key: Option<String>,
    /// The engine that said so.
    engine: String,
}

impl Login {
    /// The way into a machine of a cluster, as its info shows it.
    pub(crate) fn of(instance: &Value, engine: &str) -> Result<Login> {
        let (id, name) = (text(instance, "id"), text(instance, "name"));
        if !is_word(id) || !is_word(name) {
            return Err(Failure::new("the engine sends names of machines that cannot be right"));
        }
        let command = text(instance, "ssh_command");
        if command.is_empty() {
            let status = text(instance, "status");
            return Err(Failure::new(format!("machine {name} is {status}, and one can log in when it is RUNNING")));
        }
        let (user, host, port, host_key) = parse(command).ok_or_else(|| {
            Failure::new("the engine describes the way into the machine by something else than a plain ssh")
        })?;
        Ok(Login {
            instance: id.to_owned(),
            name: name.to_owned(),
            user,
            host,
            port,
            host_key,
            engine: engine.to_owned(),
        })
    }

    /// The options by which `ssh`, `scp` and the like know the other side. `known` is the file of host keys that is ours.
    pub(crate) fn options(&self, known: Option<&std::path::Path>) -> Vec<String> {
        let mut options = vec![format!("Port={}", self.port)];
        match (known, &self.host_key) {
            (Some(known), Some(_)) => options.extend([
                format!("HostKeyAlias={}", self.alias()),
                format!("UserKnownHostsFile=\"{}\"", known.display()),
                "GlobalKnownHostsFile=/dev/null".to_owned(),
                "StrictHostKeyChecking=yes".to_owned(),
            ]),
            _ => options.push("StrictHostKeyChecking=accept-new".to_owned()),
        }
        options
    }

    /// The name by which the key of the other side is known: no engine can say which key another one's machines have.
    pub(crate) fn alias(&self) -> String {
        let engine: String = self.engine.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("tarn-{engine}-{}-{}", self.host.replace(':', "."), self.port)
    }

    /// The line of the file of host keys.
    pub(crate) fn known_line(&self) -> Option<String> {
        self.host_key.as_ref().map(|key| format!("{} {key}\n", self.alias()))
    }
}

/// User, host, port and key of the host.
fn parse(command: &str) -> Option<(String, String, u16, Option<String>)> {
    let words = words(command)?;
    let (first, mut rest) = words.split_first()?;
    if first != "ssh" {
        return None;
    }
    let (mut port, mut host_key, mut destination) = (22, None, None);
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        match word.as_str() {
            "-p" => {
                let (value, after) = rest.split_first()?;
                (port, rest) = (value.parse().ok()?, after);
            }
            "-o" => {
                let (value, after) = rest.split_first()?;
                rest = after;
                if let Some(said) = value.strip_prefix("KnownHostsCommand=") {
                    host_key = Some(key_of(said)?);
                }
                // The others say how to treat that key, which is done here in our own way.
            }
            word if destination.is_none() => destination = Some(word.to_owned()),
            _ => return None,
        }
    }
    let destination = destination?;
    let (user, host) = destination.split_once('@')?;
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-".contains(&byte));
    (is_word(user) && is_host && !host.starts_with('-')).then(|| (user.to_owned(), host.to_owned(), port, host_key))
}

/// The key in `/bin/echo <alias> <kind> <key>`.
fn key_of(command: &str) -> Option<String> {
    let parts: Vec<&str> = command.split(' ').collect();
    let ["/bin/echo", _, kind, key] = parts.as_slice() else { return None };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-@.".contains(&byte));
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    (is_kind && is_key).then(|| format!("{kind} {key}"))
}

/// Words as a shell would take them, where that is simple: separated by spaces, some in double quotes.
fn words(text: &str) -> Option<Vec<String>> {
    if text.contains(['\\', '\'', '$', '`', ';', '&', '|', '<', '>', '\n']) {
        return None;
    }
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            c => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    (!is_quoted).then_some(words)
}

/// A name that nobody can take for an option or a piece of a file of configuration.
fn is_word(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.bytes().all(is_good)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn login(command: &str) -> Result<Login> {
        Login::of(&json!({ "id": "i-1", "name": "c-1-0", "status": "RUNNING", "ssh_command": command }), "http://a")
    }

    #[test]
    fn a_way_that_is_a_plain_ssh_is_understood() {
        let way = login(
            "ssh -p 7022 -o StrictHostKeyChecking=yes -o HostKeyAlias=tarn -o UserKnownHostsFile=/dev/null \
             -o \"KnownHostsCommand=/bin/echo tarn ssh-ed25519 AAAA+/=\" i-1@127.0.0.1",
        );
        let way = way.unwrap();
        assert_eq!((way.user.as_str(), way.host.as_str(), way.port), ("i-1", "127.0.0.1", 7022));
        assert_eq!(way.known_line().unwrap(), "tarn-http---a-127.0.0.1-7022 ssh-ed25519 AAAA+/=\n");
        assert_eq!(login("ssh ubuntu@10.0.0.1").unwrap().port, 22);
    }

    #[test]
    fn nothing_else_is() {
        for command in [
            "ssh -oProxyCommand=id i-1@host",
            "ssh i-1@host; id",
            "ssh i-1@-oProxyCommand=id",
            "ssh -i-1@host",
            "curl http://host",
            "ssh i-1@host id",
            "ssh -p x i-1@host",
            "ssh $(id)@host",
            "ssh -o \"KnownHostsCommand=/bin/sh -c id\" i-1@host",
            "ssh i-1@host\nHost *",
        ] {
            assert!(login(command).is_err(), "{command}");
        }
    }

    #[test]
    fn who_does_not_run_says_so() {
        let failure = Login::of(&json!({ "id": "i-1", "name": "c-1-0", "status": "PENDING", "ssh_command": null }), "")
            .unwrap_err();
        assert!(failure.to_string().contains("PENDING"), "{failure}");
    }
}
