//! Sections (`[name]`) in the configuration files of other programs: one is written, all others stay as they are.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::files;

/// A section that an engine may write. Some keys make other programs run commands, so only known keys are allowed.
pub(crate) struct AllowedSection {
    /// The path of the file below the home directory.
    pub(crate) file: &'static str,
    /// The name between the brackets.
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
}

/// Writes a section into a file, replacing the section of the same name. The file holds keys, so it becomes readable
/// for its owner only.
pub(crate) fn write_section(home: &Path, kind: &AllowedSection, section: &str) -> Result<PathBuf> {
    check_section(kind, section)?;
    let path = home.join(kind.file);
    let before = files::read_if_exists(&path)?;
    files::replace_file(&path, &replace_section(&before, kind.name, section))?;
    Ok(path)
}

/// Refuses anything but one section with allowed keys.
fn check_section(kind: &AllowedSection, section: &str) -> Result<()> {
    let mut lines = section.trim_end_matches('\n').split('\n');
    let is_ours = lines.next().and_then(section_name) == Some(kind.name);
    let unknown = lines.find(|line| {
        let key = line.split_once('=').map(|(key, _)| key.trim());
        line.contains(char::is_control) || !key.is_some_and(|key| kind.keys.contains(&key))
    });
    match unknown {
        None if is_ours => Ok(()),
        None => Err(Failure::new(format!("the engine sent a section other than [{}]; nothing was written", kind.name))),
        Some(line) => Err(Failure::new(format!(
            "the engine sent {line:?} for {}, which is not an allowed key; nothing was written",
            kind.file
        ))),
    }
}

fn section_name(line: &str) -> Option<&str> {
    line.trim().strip_prefix('[')?.strip_suffix(']')
}

/// The text with the section replaced or appended.
fn replace_section(before: &str, name: &str, section: &str) -> String {
    let (mut kept, mut is_old) = (Vec::new(), false);
    for line in before.lines() {
        is_old = section_name(line).map_or(is_old, |found| found == name);
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
    fn only_the_named_section_changes() {
        assert_eq!(replace_section("", "tp", "[tp]\na = 1\n"), "[tp]\na = 1\n");
        assert_eq!(replace_section("[x]\nb = 2\n", "tp", "[tp]\na = 1"), "[x]\nb = 2\n\n[tp]\na = 1\n");
        let before = "# mine\n[tp]\na = 0\nold = 1\n\n[x]\nb = 2\n";
        assert_eq!(replace_section(before, "tp", "[tp]\na = 1"), "# mine\n[x]\nb = 2\n\n[tp]\na = 1\n");
    }

    const KIND: AllowedSection = AllowedSection { file: ".aws/credentials", name: "tp", keys: &["a", "b"] };

    #[test]
    fn file_is_private_and_link_stays() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("elsewhere");
        let path = write_section(place.path(), &KIND, "[tp]\na = 1\n").unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::rename(&path, &target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        write_section(place.path(), &KIND, "[tp]\na = 2\n").unwrap();
        assert!(path.is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "[tp]\na = 2\n");
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(check_section(&KIND, "[tp]\na = 1\n    b = 2\n").is_ok());
        for odd in [
            "",
            "nonsense",
            "[tp]\nc = 1",
            "[other]\na = 1",
            "[tp]\na = 1\n[x]\na = 2",
            "[tp]\na = 1\rc = 2",
            "[tp]\na",
        ] {
            assert!(check_section(&KIND, odd).is_err(), "{odd:?}");
        }
    }
}
