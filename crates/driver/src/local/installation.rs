//! The installation id, which marks everything the driver creates: several engines on one host must not see each
//! other's instances.

use std::fs;
use std::io;
use std::path::Path;

use crate::local::host::{files, processes};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 6;
const FILE: &str = "installation";

/// Returns the id of the installation whose data directory this is, and generates it on the first call.
pub fn ensure_id(data: &Path) -> io::Result<String> {
    if let Some(id) = existing_id(data)? {
        return Ok(id);
    }
    let id = generate_id()?;
    files::write_durably(&data.join(FILE), id.as_bytes(), 0o644)?;
    Ok(id)
}

/// Returns the id of the installation, if it has one.
pub fn existing_id(data: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(data.join(FILE)) {
        Ok(text) => {
            let id = text.trim();
            let is_valid = id.len() == LENGTH && id.bytes().all(|byte| ALPHABET.contains(&byte));
            is_valid.then(|| Some(id.to_owned())).ok_or_else(|| {
                io::Error::other(format!("{} does not contain an installation id", data.join(FILE).display()))
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the seat of an engine on this host: which run of the host, and which data directory. Only one engine at a
/// time can use it.
pub fn seat(data: &Path) -> io::Result<String> {
    Ok(format!("{} {}", processes::boot_id()?, data.canonicalize()?.display()))
}

/// Generates six characters. The first is a letter, because some names that carry the id must not start with a digit.
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

    /// The id is generated once and found again.
    #[test]
    fn id_is_generated_once() {
        let data = tempfile::tempdir().unwrap();
        let generated = ensure_id(data.path()).unwrap();
        assert_eq!(ensure_id(data.path()).unwrap(), generated);
        assert!(
            generated.len() == LENGTH && generated.starts_with(|first: char| first.is_ascii_lowercase()),
            "{generated}"
        );
    }

    /// A file without a valid id is an error.
    #[test]
    fn damaged_id_is_refused() {
        let data = tempfile::tempdir().unwrap();
        for damaged in ["", "../etc", "ABCDEF", "abcdefg"] {
            fs::write(data.path().join(FILE), damaged).unwrap();
            assert!(ensure_id(data.path()).is_err(), "{damaged:?}");
        }
    }
}
