//! The installation's id, which everything the driver makes carries: several engines on one machine must not see each
//! other's instances.

use std::fs;
use std::io;
use std::path::Path;

use crate::local::host::files;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 6;
const FILE: &str = "installation";

/// The id of the installation that keeps its data here; made at the first call.
pub(super) fn ensure_id(data: &Path) -> io::Result<String> {
    if let Some(id) = existing_id(data)? {
        return Ok(id);
    }
    let id = generate_id()?;
    files::write_durably(&data.join(FILE), id.as_bytes(), 0o644)?;
    Ok(id)
}

/// The same, if there is one.
pub(super) fn existing_id(data: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(data.join(FILE)) {
        Ok(text) => {
            let id = text.trim();
            let is_valid = id.len() == LENGTH && id.bytes().all(|byte| ALPHABET.contains(&byte));
            is_valid.then(|| Some(id.to_owned())).ok_or_else(|| {
                io::Error::other(format!("{} does not hold an installation's id", data.join(FILE).display()))
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Six characters, the first of them a letter, because some names that carry the id must not begin with a digit.
fn generate_id() -> io::Result<String> {
    let random = fs::read("/proc/sys/kernel/random/uuid")?;
    let bytes = blake3::hash(&random);
    let text = bytes.as_bytes().iter().take(LENGTH).map(|byte| ALPHABET[usize::from(byte & 31)] as char);
    let mut id: String = text.collect();
    id.replace_range(..1, ["a", "b", "c", "d", "e", "f", "g", "h"][usize::from(bytes.as_bytes()[LENGTH] & 7)]);
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_once_and_found_again() {
        let data = tempfile::tempdir().unwrap();
        let made = ensure_id(data.path()).unwrap();
        assert_eq!(ensure_id(data.path()).unwrap(), made);
        assert!(made.len() == LENGTH && made.starts_with(|first: char| first.is_ascii_lowercase()), "{made}");
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let data = tempfile::tempdir().unwrap();
        for damaged in ["", "../etc", "ABCDEF", "abcdefg"] {
            fs::write(data.path().join(FILE), damaged).unwrap();
            assert!(ensure_id(data.path()).is_err(), "{damaged:?}");
        }
    }
}
