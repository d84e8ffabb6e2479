//! SSH public keys: parsed and normalised before they are stored.

use ssh_key::{HashAlg, PublicKey};

use crate::Time;
use crate::ids::SshKeyId;
use crate::users::Owner;

/// The longest key text that is parsed; an RSA key of 16,384 bits has about 2,800 characters.
pub const MAX_LENGTH: usize = 8_192;

/// A saved public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKey {
    pub id: SshKeyId,
    pub owner: Owner,
    pub name: String,
    /// The normalised OpenSSH text.
    pub public_key: String,
    /// The SHA-256 fingerprint, which identifies the key whatever its comment.
    pub fingerprint: String,
    pub created: Time,
}

/// A parsed public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedKey {
    /// Algorithm, key and comment on one line.
    pub public_key: String,
    /// The SHA-256 fingerprint.
    pub fingerprint: String,
}

/// The text is not a public key in OpenSSH's format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an SSH public key: give the one line of a .pub file, such as 'ssh-ed25519 AAAA… me@laptop'")]
pub struct NotAKey;

/// Parses a public key in OpenSSH's one-line format. A private key is refused like any other text, and never echoed.
pub fn parse(text: &str) -> Result<ParsedKey, NotAKey> {
    let line = text.trim();
    if line.len() > MAX_LENGTH || line.chars().any(char::is_control) {
        return Err(NotAKey);
    }
    let key = PublicKey::from_openssh(line).map_err(|_| NotAKey)?;
    let public_key = key.to_openssh().map_err(|_| NotAKey)?;
    Ok(ParsedKey { public_key, fingerprint: key.fingerprint(HashAlg::Sha256).to_string() })
}

/// Returns whether a text is a valid name of a key: 1 to 100 characters without control characters.
pub fn is_name(text: &str) -> bool {
    (1..=100).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti user@example.com";

    #[test]
    fn parse_trims_whitespace() {
        let parsed = parse(&format!("  {KEY}\n")).unwrap();
        assert_eq!(parsed.public_key, KEY);
        assert!(parsed.fingerprint.starts_with("SHA256:"));
    }

    #[test]
    fn parse_refuses_other_texts() {
        let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----";
        for text in
            ["", "ssh-ed25519", "ssh-ed25519 AAAA", "hello", private, &format!("{KEY}\n{KEY}"), &format!("{KEY}\0")]
        {
            assert_eq!(parse(text), Err(NotAKey), "{text:?}");
        }
    }
}
