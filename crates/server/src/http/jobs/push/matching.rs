//! Selects the files of a job by the rules of `.gitignore`: later patterns win, a `!` includes a file again, a slash
//! anchors a pattern, and the content of an ignored directory cannot be included again.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::listing::Entry;
use super::turns::Turn;

/// How many names the listing prunes, and how long such a name may be.
const MAX_PRUNED: (usize, usize) = (100, 100);

/// How many directories are matched: each is compared with every pattern.
const MAX_DIRECTORIES: usize = 1_000_000;

/// The patterns of a job.
pub(super) struct Patterns(Gitignore);

impl Patterns {
    /// Parses the patterns; the error names an invalid one.
    pub(super) fn new(lines: &[String]) -> Result<Self, String> {
        let mut builder = GitignoreBuilder::new("");
        for line in lines {
            let added = builder.add_line(None, line);
            added.map_err(|error| format!("ignore: '{line}' is not a pattern of .gitignore: {error}"))?;
        }
        builder.build().map(Patterns).map_err(|error| format!("ignore: these patterns do not work: {error}"))
    }

    /// Returns the entries that belong to the job; the error is a message for the client.
    pub(super) fn select_files<'a>(
        &self,
        entries: impl Iterator<Item = Entry<'a>>,
        turn: &mut Turn,
    ) -> Result<Vec<Entry<'a>>, String> {
        let (mut kept, mut previous) = (Vec::new(), PreviousEntry::default());
        for entry in entries {
            if !self.is_ignored(entry, &mut previous, turn)? {
                kept.push(entry);
            }
            if previous.directories > MAX_DIRECTORIES {
                return Err(format!(
                    "the files lie in more than {MAX_DIRECTORIES} directories; ignore what the job does not need"
                ));
            }
        }
        Ok(kept)
    }

    /// Returns whether an entry or one of its directories is ignored. Names come directory by directory, so it is
    /// enough to remember the directories of the previous one.
    fn is_ignored<'a>(
        &self,
        entry: Entry<'a>,
        previous: &mut PreviousEntry<'a>,
        turn: &mut Turn,
    ) -> Result<bool, String> {
        let name = entry.name;
        let common = name.iter().zip(previous.name).take_while(|(here, there)| here == there).count();
        previous.name = name;
        if previous.ignored_at.is_some_and(|slash| slash < common) {
            return Ok(true);
        }
        let known = previous.kept.min(common);
        *previous = PreviousEntry { kept: name.len(), ignored_at: None, ..*previous };
        for slash in (known..name.len()).filter(|at| name[*at] == b'/' && *at > 0) {
            previous.directories += 1;
            turn.check()?;
            if self.matches(&name[..slash], true) {
                *previous = PreviousEntry { kept: slash, ignored_at: Some(slash), ..*previous };
                return Ok(true);
            }
        }
        turn.check()?;
        Ok(self.matches(name, entry.is_directory))
    }

    fn matches(&self, name: &[u8], is_directory: bool) -> bool {
        self.0.matched(Path::new(OsStr::from_bytes(name)), is_directory).is_ignore()
    }
}

/// What is known about the directories of the previous name.
#[derive(Default)]
struct PreviousEntry<'a> {
    name: &'a [u8],
    /// Directories that end before this position are not ignored.
    kept: usize,
    /// Where the first ignored directory ends.
    ignored_at: Option<usize>,
    /// How many directories were matched in total.
    directories: usize,
}

/// Returns the names of directories that need not be listed: plain names that no later pattern can include again.
pub(super) fn prunable_names(lines: &[String]) -> Vec<&str> {
    let after_negations = lines.iter().rposition(|line| line.starts_with('!')).map_or(0, |last| last + 1);
    let is_plain = |name: &&str| {
        let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        letters && !matches!(*name, "" | "." | "..") && name.len() <= MAX_PRUNED.1
    };
    let names = lines[after_negations..].iter().map(|line| line.strip_suffix('/').unwrap_or(line));
    names.filter(is_plain).take(MAX_PRUNED.0).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::jobs::push::turns::MATCH_TIMEOUT;

    fn select<'a>(patterns: &Patterns, entries: impl Iterator<Item = Entry<'a>>) -> Result<Vec<Entry<'a>>, String> {
        let (mut turn, _cancel) = Turn::alone(MATCH_TIMEOUT);
        patterns.select_files(entries, &mut turn)
    }

    fn kept<'a>(patterns: &[&str], names: &[&'a str]) -> Vec<&'a str> {
        let lines: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let kept = select(&Patterns::new(&lines).unwrap(), names.iter().map(|name| entry(name.as_bytes()))).unwrap();
        kept.into_iter().map(|entry| std::str::from_utf8(entry.name).unwrap()).collect()
    }

    /// A name that ends with a slash is a directory.
    fn entry(name: &[u8]) -> Entry<'_> {
        match name.strip_suffix(b"/") {
            Some(name) => Entry { name, is_directory: true },
            None => Entry { name, is_directory: false },
        }
    }

    /// The rules are those of `.gitignore`.
    #[test]
    fn patterns_follow_gitignore_rules() {
        let cases: [(&[&str], &[&str], &[&str]); 18] = [
            (&[], &["a", "b/c"], &["a", "b/c"]),
            (&["*.pyc"], &["a.py", "a.pyc", "b/c.pyc"], &["a.py"]),
            (&["data"], &["data", "x/data", "data/a", "x/data/b", "data2"], &["data2"]),
            (&["data/"], &["data", "x/data/b", "data/a"], &["data"]),
            (&["/data"], &["data", "data/a", "x/data", "x/data/a"], &["x/data", "x/data/a"]),
            (&["a/b"], &["a/b", "a/b/c", "x/a/b"], &["x/a/b"]),
            (&["**/b"], &["b", "a/b", "a/c"], &["a/c"]),
            (&["a/**/z"], &["a/z", "a/b/z", "a/b/c/z", "z"], &["z"]),
            (&["*.log", "!keep.log"], &["a.log", "keep.log", "x/keep.log"], &["keep.log", "x/keep.log"]),
            (&["!keep.log", "*.log"], &["a.log", "keep.log"], &[]),
            (&["logs/", "!logs/keep.log"], &["logs/a", "logs/keep.log"], &[]),
            (&["logs/*", "!logs/keep.log"], &["logs/a", "logs/keep.log"], &["logs/keep.log"]),
            (&["# no pattern", "", "\\#yes"], &["# no pattern", "#yes"], &["# no pattern"]),
            (&["a?c", "[xy].txt"], &["abc", "ac", "x.txt", "z.txt"], &["ac", "z.txt"]),
            (&["data/"], &["data", "data/", "x/data/", "dat/"], &["data", "dat"]),
            (
                &["/a/b"],
                &["a/b/1", "a/b/2", "a/c", "a/b", "ab", "a/bc/1", "b/a/b/1"],
                &["a/c", "ab", "a/bc/1", "b/a/b/1"],
            ),
            (&["b"], &["a/b/1", "a/2", "a/b/3", "b/4", "a/5", "a/c/b"], &["a/2", "a/5"]),
            (&["with space", "new\nline"], &["with space", "new\nline", "new"], &["new"]),
        ];
        for (patterns, names, expected) in cases {
            assert_eq!(kept(patterns, names), expected, "{patterns:?}");
        }
        let odd: [&[u8]; 2] = [b"caf\xe9", b"x.\xff"];
        let patterns = Patterns::new(&["*.?".to_owned()]).unwrap();
        let kept = select(&patterns, odd.into_iter().map(entry)).unwrap();
        assert_eq!(kept, [entry(b"caf\xe9")], "names need not be text");
    }

    /// A match ends when its time is over, and when it is cancelled.
    #[test]
    fn match_ends_early() {
        let patterns = Patterns::new(&["never*".to_owned()]).unwrap();
        let result = |turn: &mut Turn| patterns.select_files([entry(b"a/b")].into_iter(), turn);
        let (mut turn, cancel) = Turn::alone(MATCH_TIMEOUT);
        assert_eq!(result(&mut turn).unwrap().len(), 1);
        drop(cancel);
        assert!(result(&mut turn).unwrap_err().contains("the push ended"));
        let (mut turn, _cancel) = Turn::alone(Duration::ZERO);
        assert!(result(&mut turn).unwrap_err().contains("simpler patterns"));
    }

    /// A name may be deeply nested.
    #[test]
    fn deep_names_are_matched() {
        let patterns = Patterns::new(&["never".to_owned()]).unwrap();
        let deep = "a/".repeat(2000) + "file";
        assert_eq!(select(&patterns, [entry(deep.as_bytes())].into_iter()).unwrap().len(), 1);
        let deeper = "a/".repeat(MAX_DIRECTORIES + 1);
        let plain = Entry { name: deeper.as_bytes(), is_directory: false };
        let refused = select(&Patterns::new(&["/a/a/a".to_owned()]).unwrap(), [plain].into_iter());
        assert_eq!(refused.unwrap().len(), 0, "no directory below an ignored one is matched");
    }

    /// Each directory is matched once, and their number is bounded.
    #[test]
    fn directories_are_matched_once() {
        let patterns = Patterns::new(&["never".to_owned()]).unwrap();
        let (mut previous, (mut turn, _cancel)) = (PreviousEntry::default(), Turn::alone(MATCH_TIMEOUT));
        for name in ["a/b/1", "a/b/2", "a/3", "a/c/4", "d/5"] {
            assert!(!patterns.is_ignored(entry(name.as_bytes()), &mut previous, &mut turn).unwrap());
        }
        assert_eq!(previous.directories, 4);
        let names: Vec<String> = (0..=MAX_DIRECTORIES).map(|n| format!("{n:x}/a")).collect();
        let refused = select(&patterns, names.iter().map(|name| entry(name.as_bytes()))).err().unwrap();
        assert!(refused.contains("more than 1000000 directories"), "{refused}");
    }

    /// An invalid pattern is reported.
    #[test]
    fn invalid_pattern_is_reported() {
        let wrong = Patterns::new(&["ok".to_owned(), "[z-a]".to_owned()]).err().unwrap();
        assert!(wrong.starts_with("ignore: '[z-a]' is not a pattern"), "{wrong}");
    }

    /// Only directories that no later pattern includes again are pruned.
    #[test]
    fn only_final_ignores_are_pruned() {
        let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<String>>();
        let patterns = lines(&[".git/", "node_modules", "*.pyc", "a/b", "/c", "!x", "", "..", "it's"]);
        assert!(prunable_names(&patterns).is_empty());
        let patterns = lines(&["first", "!x", ".git/", "node_modules", "*.pyc", "a/b", "/c", "", "..", "it's"]);
        assert_eq!(prunable_names(&patterns), [".git", "node_modules"]);
        assert_eq!(prunable_names(&vec!["name".to_owned(); 1000]).len(), 100);
    }
}
