//! The SSH target of an instance. The engine describes it as an `ssh` command, which is never run: it is parsed into
//! its parts, and anything but the expected parts is refused. This module does no I/O.

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::terminal::output::text_field;

/// How to reach one instance over SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshTarget {
    /// The instance ID.
    pub(crate) instance: String,
    /// The host name of the instance.
    pub(crate) name: String,
    /// The user name for SSH.
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The type and the value of the host key.
    pub(crate) host_key: Option<String>,
    /// The URL of the engine that described the target.
    engine: String,
}

impl SshTarget {
    /// Reads the target from an instance in the response about a cluster.
    pub(crate) fn from_instance(instance: &Value, engine: &str) -> Result<SshTarget> {
        let (id, name) = (text_field(instance, "id"), text_field(instance, "name"));
        if !is_plain_name(id) || !is_plain_name(name) {
            return Err(Failure::new("the engine sent an instance name that is not valid"));
        }
        let command = text_field(instance, "ssh_command");
        if command.is_empty() {
            let status = text_field(instance, "status");
            return Err(Failure::new(format!("instance {name} is {status}; you can log in when it is RUNNING")));
        }
        let (user, host, port, host_key) = parse_ssh_command(command)
            .ok_or_else(|| Failure::new("the engine sent an SSH command that is not a plain `ssh`; it was not used"))?;
        Ok(SshTarget {
            instance: id.to_owned(),
            name: name.to_owned(),
            user,
            host,
            port,
            host_key,
            engine: engine.to_owned(),
        })
    }

    /// The options for `ssh` and `scp`. `known` is the client's own `known_hosts` file.
    pub(crate) fn ssh_options(&self, known: Option<&std::path::Path>) -> Vec<String> {
        let mut options = vec![format!("Port={}", self.port)];
        match (known, &self.host_key) {
            (Some(known), Some(_)) => options.extend([
                format!("HostKeyAlias={}", self.host_key_alias()),
                format!("UserKnownHostsFile=\"{}\"", known.display()),
                "GlobalKnownHostsFile=/dev/null".to_owned(),
                "StrictHostKeyChecking=yes".to_owned(),
            ]),
            _ => options.push("StrictHostKeyChecking=accept-new".to_owned()),
        }
        options
    }

    /// The host key alias. It contains the engine, so that no engine can set the host key of another one.
    pub(crate) fn host_key_alias(&self) -> String {
        let engine: String = self.engine.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("tarn-{engine}-{}-{}", self.host.replace(':', "."), self.port)
    }

    /// The line for the `known_hosts` file.
    pub(crate) fn known_hosts_line(&self) -> Option<String> {
        self.host_key.as_ref().map(|key| format!("{} {key}\n", self.host_key_alias()))
    }
}

/// Parses the command into user, host, port and host key.
fn parse_ssh_command(command: &str) -> Option<(String, String, u16, Option<String>)> {
    let words = split_words(command)?;
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
                    host_key = Some(parse_known_hosts_command(said)?);
                }
                // The other options say how to verify the key; the client sets these itself.
            }
            word if destination.is_none() => destination = Some(word.to_owned()),
            _ => return None,
        }
    }
    let destination = destination?;
    let (user, host) = destination.split_once('@')?;
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-".contains(&byte));
    (is_plain_name(user) && is_host && !host.starts_with('-'))
        .then(|| (user.to_owned(), host.to_owned(), port, host_key))
}

/// The key in `/bin/echo <alias> <kind> <key>`.
fn parse_known_hosts_command(command: &str) -> Option<String> {
    let parts: Vec<&str> = command.split(' ').collect();
    let ["/bin/echo", _, kind, key] = parts.as_slice() else { return None };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-@.".contains(&byte));
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    (is_kind && is_key).then(|| format!("{kind} {key}"))
}

/// Splits a command into words at spaces, with double quotes. Anything else that a shell treats specially is refused.
fn split_words(text: &str) -> Option<Vec<String>> {
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

/// Whether a name is safe as an argument and in a configuration file.
fn is_plain_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.bytes().all(is_good)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_target(command: &str) -> Result<SshTarget> {
        SshTarget::from_instance(
            &json!({ "id": "i-1", "name": "c-1-0", "status": "RUNNING", "ssh_command": command }),
            "http://a",
        )
    }

    #[test]
    fn plain_ssh_command_is_parsed() {
        let way = parse_target(
            "ssh -p 7022 -o StrictHostKeyChecking=yes -o HostKeyAlias=tarn -o UserKnownHostsFile=/dev/null \
             -o \"KnownHostsCommand=/bin/echo tarn ssh-ed25519 AAAA+/=\" i-1@127.0.0.1",
        );
        let way = way.unwrap();
        assert_eq!((way.user.as_str(), way.host.as_str(), way.port), ("i-1", "127.0.0.1", 7022));
        assert_eq!(way.known_hosts_line().unwrap(), "tarn-http---a-127.0.0.1-7022 ssh-ed25519 AAAA+/=\n");
        assert_eq!(parse_target("ssh ubuntu@10.0.0.1").unwrap().port, 22);
    }

    #[test]
    fn other_commands_are_refused() {
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
            assert!(parse_target(command).is_err(), "{command}");
        }
    }

    #[test]
    fn stopped_instance_names_its_status() {
        let failure = SshTarget::from_instance(
            &json!({ "id": "i-1", "name": "c-1-0", "status": "PENDING", "ssh_command": null }),
            "",
        )
        .unwrap_err();
        assert!(failure.to_string().contains("PENDING"), "{failure}");
    }
}
