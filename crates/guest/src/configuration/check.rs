//! Rejects a configuration that must not get into files. Nothing is changed then.

use std::net::IpAddr;

use tarn_link::Configuration;

const MAX_KEYS: usize = 5000;
const MAX_HOSTS: usize = 5000;
const MAX_VOLUMES: usize = 16;
const MAX_LINE: usize = 16 << 10;

/// Checks a configuration; the error is for a person.
pub(crate) fn check_configuration(configuration: &Configuration) -> Result<(), String> {
    let Configuration { public_keys, hosts, host_key, peer_key, peer_public_key, known_hosts, volumes } = configuration;
    if public_keys.len() > MAX_KEYS || hosts.len() > MAX_HOSTS || known_hosts.len() > MAX_HOSTS {
        return Err(format!("at most {MAX_KEYS} keys and {MAX_HOSTS} hosts are allowed"));
    }
    if let Some(key) = public_keys.iter().find(|key| !is_line(key) || key.split_whitespace().count() < 2) {
        return Err(format!("not a public key: {key:.80}"));
    }
    if let Some((name, _)) = hosts.iter().find(|(name, _)| !is_host_name(name)) {
        return Err(format!("not a host name: {name:.80}"));
    }
    if let Some((_, address)) = hosts.iter().find(|(_, address)| address.parse::<IpAddr>().is_err()) {
        return Err(format!("not an IP address: {address:.80}"));
    }
    if let Some(line) = known_hosts.iter().find(|line| !is_line(line)) {
        return Err(format!("not a line for known_hosts: {line:.80}"));
    }
    if !host_key.is_empty() && tarn_ssh::Settings::new(host_key).is_err() {
        return Err("the host key is not a private key in OpenSSH format".into());
    }
    if !peer_key.is_empty() && tarn_ssh::Settings::new(peer_key).is_err() {
        return Err("the peer key is not a private key in OpenSSH format".into());
    }
    if !peer_public_key.is_empty() && !is_line(peer_public_key) {
        return Err("the public peer key is not a single line".into());
    }
    check_volumes(volumes)
}

fn check_volumes(volumes: &[(String, String)]) -> Result<(), String> {
    if volumes.len() > MAX_VOLUMES {
        return Err(format!("at most {MAX_VOLUMES} volumes are allowed"));
    }
    if let Some((name, _)) = volumes.iter().find(|(name, _)| !is_volume_name(name)) {
        return Err(format!("not a volume name: {name:.80}"));
    }
    if let Some((_, path)) = volumes.iter().find(|(_, path)| !is_mount_path(path)) {
        return Err(format!("not a mount point of a volume: {path:.80}"));
    }
    Ok(())
}

/// Returns whether a text stays on one line of a file and is not a comment.
fn is_line(text: &str) -> bool {
    let text = text.trim_end();
    !text.is_empty() && text.len() <= MAX_LINE && !text.starts_with('#') && !text.chars().any(char::is_control)
}

fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() <= 63 && label.chars().all(good) && !label.starts_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Returns whether a name is neither a path nor hidden.
fn is_volume_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(good)
}

fn is_mount_path(path: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    path.strip_prefix("/mnt/s-").is_some_and(|id| id.len() == 12 && id.chars().all(good))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Configuration)) -> Result<(), String> {
        let mut configuration = Configuration::default();
        change(&mut configuration);
        check_configuration(&configuration)
    }

    /// Values that would break a file are rejected.
    #[test]
    fn check_rejects_invalid_values() {
        assert_eq!(with(|_| {}), Ok(()));
        assert!(with(|c| c.hosts = vec![("c-1-0".into(), "10.0.0.1".into())]).is_ok());
        for name in ["", "a b", "a\nb", "-a", "a..b", "a#b", &"a".repeat(64)] {
            assert!(with(|c| c.hosts = vec![(name.into(), "10.0.0.1".into())]).is_err(), "{name}");
        }
        assert!(with(|c| c.hosts = vec![("a".into(), "10.0.0.1\n10.0.0.2 evil".into())]).is_err());
        for key in ["", "ssh-ed25519", "ssh-ed25519 AAAA\nssh-rsa BBBB", "# a comment"] {
            assert!(with(|c| c.public_keys = vec![key.into()]).is_err(), "{key}");
        }
        assert!(with(|c| c.known_hosts = vec!["a\0b".into()]).is_err());
        assert!(with(|c| c.host_key = "nonsense".into()).is_err());
        assert!(with(|c| c.peer_key = "nonsense".into()).is_err());
        assert!(with(|c| c.public_keys = vec!["ssh-rsa A".into(); MAX_KEYS + 1]).is_err());
    }
    /// Volume links need a volume name and a mount point.
    #[test]
    fn check_rejects_invalid_volumes() {
        let volume = |name: &str, path: &str| with(|c| c.volumes = vec![(name.into(), path.into())]);
        let good = "/mnt/s-0123456789ab";
        assert_eq!(volume("data", good), Ok(()));
        assert_eq!(volume(&"a".repeat(63), good), Ok(()));
        for name in ["", ".", "..", ".ssh", "a/b", "a b", "a\n", "A", "\u{e9}", &"a".repeat(64)] {
            assert!(volume(name, good).is_err(), "{name:?}");
        }
        for path in ["", "/", "/mnt", "/mnt/s-", "/etc/s-0123456789ab", "/mnt/s-0123456789a", "/mnt/s-0123456789abc"] {
            assert!(volume("data", path).is_err(), "{path:?}");
        }
        assert!(volume("data", "/mnt/s-../../etc/xx").is_err());
        assert!(with(|c| c.volumes = vec![("data".into(), good.into()); MAX_VOLUMES + 1]).is_err());
    }
}
