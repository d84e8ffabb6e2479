//! Which files of a job are wanted.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// What a pattern means something by.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Patterns that are looked for together.
#[derive(Debug)]
pub(super) struct Patterns {
    set: GlobSet,
    reaches: Vec<Reach>,
}

/// Where something may be that a pattern matches.
#[derive(Debug)]
struct Reach {
    /// The directories that the pattern names before anything special.
    beginning: Vec<String>,
    /// How many names a path can have; any number if there is none.
    depth: Option<usize>,
}

impl Patterns {
    /// Understands patterns; those that are none come back with the reason.
    pub(super) fn new(patterns: &[String]) -> (Patterns, Vec<(String, &'static str)>) {
        let (mut set, mut reaches, mut refused) = (GlobSetBuilder::new(), Vec::new(), Vec::new());
        for pattern in patterns {
            let clean = cleaned(pattern);
            if clean.starts_with('/') || clean.split('/').any(|part| part == "..") {
                refused.push((pattern.clone(), "it leads out of the directory of the job"));
                continue;
            }
            match GlobBuilder::new(clean).literal_separator(true).backslash_escape(true).build() {
                Ok(glob) => {
                    set.add(glob);
                    reaches.push(Reach::of(clean));
                }
                Err(_) => refused.push((pattern.clone(), "it is no pattern")),
            }
        }
        match set.build() {
            Ok(set) => (Patterns { set, reaches }, refused),
            Err(_) => {
                let all = patterns.iter().map(|pattern| (pattern.clone(), "the patterns are too large together"));
                (Patterns { set: GlobSet::empty(), reaches: Vec::new() }, all.collect())
            }
        }
    }

    /// Whether a path is wanted, with everything below it.
    pub(super) fn match_path(&self, path: &Path) -> bool {
        self.set.is_match(path)
    }

    /// Whether something may be wanted that lies in a directory.
    pub(super) fn may_match_below(&self, directory: &Path) -> bool {
        self.reaches.iter().any(|reach| reach.may_lead_below(directory))
    }
}

impl Reach {
    fn of(pattern: &str) -> Reach {
        let beginning = pattern.split('/').take_while(|part| !part.contains(SPECIAL)).map(Into::into).collect();
        // A slash among alternatives is no boundary that can be counted.
        let is_bounded = !pattern.contains("**") && !pattern.contains('{');
        Reach { beginning, depth: is_bounded.then(|| pattern.split('/').count()) }
    }

    fn may_lead_below(&self, directory: &Path) -> bool {
        let mut names = directory.iter();
        let agrees = self.beginning.iter().zip(names.by_ref()).all(|(wanted, name)| name == wanted.as_str());
        agrees && self.depth.is_none_or(|depth| directory.iter().count() < depth)
    }
}

/// A pattern as it is meant: relative, and the same for a directory with and without a slash behind it.
fn cleaned(pattern: &str) -> &str {
    let mut clean = pattern;
    while let Some(rest) = clean.strip_prefix("./") {
        clean = rest.trim_start_matches('/');
    }
    clean = clean.strip_suffix('/').map_or(clean, |rest| rest.trim_end_matches('/'));
    if clean.is_empty() && !pattern.starts_with('/') || clean == "." { "**" } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let (patterns, refused) = Patterns::new(&[pattern.into()]);
        let path = Path::new(path);
        // As a walk does it: what matches a directory matches everything in it, if the walk gets there.
        let ways: Vec<&Path> = path.ancestors().filter(|way| !way.as_os_str().is_empty()).collect();
        let reached = |way: &Path| {
            way.ancestors()
                .skip(1)
                .filter(|above| !above.as_os_str().is_empty())
                .all(|above| patterns.may_match_below(above) || above.ancestors().any(|one| patterns.match_path(one)))
        };
        refused.is_empty() && ways.iter().any(|way| patterns.match_path(way) && reached(way))
    }

    #[test]
    fn patterns_match_what_people_expect() {
        for (pattern, path) in [
            ("dir", "dir/a/b"),
            ("dir/", "dir/a"),
            ("./dir", "dir/a"),
            ("dir/**", "dir/a/b"),
            ("*.pt", "model.pt"),
            ("**/*.log", "a.log"),
            ("**/*.log", "a/b/c.log"),
            ("a/*/c", "a/b/c/d"),
            ("{a,b/c}/*.txt", "b/c/x.txt"),
            ("*", ".hidden"),
            (".", "anything/at all"),
            ("a\nb", "a\nb"),
            ("[ab].txt", "b.txt"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("dir", "dirs/a"),
            ("*.pt", "dir/model.pt"),
            ("dir/*.log", "dir/a/b.log"),
            ("../x", "x"),
            ("/etc", "etc"),
            ("/", "etc"),
            ("a/../b", "b"),
            ("[", "["),
            ("", ""),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_walk_goes_only_where_something_may_be() {
        let (patterns, _) = Patterns::new(&["*.pt".into(), "out/logs/*.txt".into()]);
        for (directory, may) in
            [("data", false), ("out", true), ("out/logs", true), ("out/logs/x", false), ("out/x", false)]
        {
            assert_eq!(patterns.may_match_below(Path::new(directory)), may, "{directory}");
        }
    }
}
