//! Sections of the files of other programs (`[name]` and what follows): one is put in, all others stay as they are.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::files;

/// A section that an engine may write. Other programs run some of what stands in theirs, so only what is known goes there.
pub(crate) struct Kind {
    /// The file, below the home.
    pub(crate) file: &'static str,
    /// What stands between the brackets.
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
}

/// Puts a section with its header into a file, in the place of the one of the same name. The file has keys in it, and only its
/// owner can read it afterwards.
pub(crate) fn put(home: &Path, kind: &Kind, section: &str) -> Result<PathBuf> {
    check(kind, section)?;
    let path = home.join(kind.file);
    let before = files::read_if_there(&path)?;
    files::replace(&path, &replaced(&before, kind.name, section))?;
    Ok(path)
}

/// Refuses everything but one section with known keys.
fn check(kind: &Kind, section: &str) -> Result<()> {
    let mut lines = section.trim_end_matches('\n').split('\n');
    let is_ours = lines.next().and_then(header) == Some(kind.name);
    let stranger = lines.find(|line| {
        let key = line.split_once('=').map(|(key, _)| key.trim());
        line.contains(char::is_control) || !key.is_some_and(|key| kind.keys.contains(&key))
    });
    match stranger {
        None if is_ours => Ok(()),
        None => Err(Failure::new(format!("the engine sends another section than [{}]; nothing is written", kind.name))),
        Some(line) => Err(Failure::new(format!(
            "the engine sends {line:?} for {}, which could be harmful there; nothing is written",
            kind.file
        ))),
    }
}

fn header(line: &str) -> Option<&str> {
    line.trim().strip_prefix('[')?.strip_suffix(']')
}

/// The text with the section in it.
fn replaced(before: &str, name: &str, section: &str) -> String {
    let (mut kept, mut is_old) = (Vec::new(), false);
    for line in before.lines() {
        is_old = header(line).map_or(is_old, |found| found == name);
        if !is_old {
            kept.push(line);
        }
    }
    let kept = kept.join("\n");
    match kept.trim_end() {
        "" => format!("{}\n", section.trim_end()),
        kept => format!("{kept}\n\n{}\n", section.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_section_of_the_name_changes() {
        assert_eq!(replaced("", "tp", "[tp]\na = 1\n"), "[tp]\na = 1\n");
        assert_eq!(replaced("[x]\nb = 2\n", "tp", "[tp]\na = 1"), "[x]\nb = 2\n\n[tp]\na = 1\n");
        let before = "# mine\n[tp]\na = 0\nold = 1\n\n[x]\nb = 2\n";
        assert_eq!(replaced(before, "tp", "[tp]\na = 1"), "# mine\n[x]\nb = 2\n\n[tp]\na = 1\n");
    }

    const KIND: Kind = Kind { file: ".aws/credentials", name: "tp", keys: &["a", "b"] };

    #[test]
    fn a_file_is_made_for_its_owner_and_a_link_stays_one() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("elsewhere");
        let path = put(place.path(), &KIND, "[tp]\na = 1\n").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::rename(&path, &target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        put(place.path(), &KIND, "[tp]\na = 2\n").unwrap();
        assert!(path.is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "[tp]\na = 2\n");
    }

    #[test]
    fn only_known_keys_of_one_section_are_written() {
        assert!(check(&KIND, "[tp]\na = 1\n    b = 2\n").is_ok());
        for odd in [
            "",
            "nonsense",
            "[tp]\nc = 1",
            "[other]\na = 1",
            "[tp]\na = 1\n[x]\na = 2",
            "[tp]\na = 1\rc = 2",
            "[tp]\na",
        ] {
            assert!(check(&KIND, odd).is_err(), "{odd:?}");
        }
    }
}
