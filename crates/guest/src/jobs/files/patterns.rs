//! The patterns that select files of a job.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Characters with a special meaning in a pattern.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

/// A set of patterns.
#[derive(Debug)]
pub(in crate::jobs) struct Patterns {
    set: GlobSet,
    scopes: Vec<SearchScope>,
}

/// Where matches of a pattern may be.
#[derive(Debug)]
struct SearchScope {
    /// The literal directories at the beginning of the pattern.
    beginning: Vec<String>,
    /// The maximum depth of a path; `None` for any depth.
    depth: Option<usize>,
}

impl Patterns {
    /// Parses patterns; invalid ones are returned with the reason.
    pub(in crate::jobs) fn new(patterns: &[String]) -> (Patterns, Vec<(String, &'static str)>) {
        let (mut set, mut scopes, mut refused) = (GlobSetBuilder::new(), Vec::new(), Vec::new());
        for pattern in patterns {
            let clean = normalize_pattern(pattern);
            if clean.starts_with('/') || clean.split('/').any(|part| part == "..") {
                refused.push((pattern.clone(), "it leads out of the directory of the job"));
                continue;
            }
            match GlobBuilder::new(clean).literal_separator(true).backslash_escape(true).build() {
                Ok(glob) => {
                    set.add(glob);
                    scopes.push(SearchScope::from_pattern(clean));
                }
                Err(_) => refused.push((pattern.clone(), "it is not a valid pattern")),
            }
        }
        match set.build() {
            Ok(set) => (Patterns { set, scopes }, refused),
            Err(_) => {
                let all = patterns.iter().map(|pattern| (pattern.clone(), "the patterns are too large together"));
                (Patterns { set: GlobSet::empty(), scopes: Vec::new() }, all.collect())
            }
        }
    }

    /// Returns whether a path matches, which selects everything below it.
    pub(in crate::jobs) fn matches_path(&self, path: &Path) -> bool {
        self.set.is_match(path)
    }

    /// Returns whether a path below a directory may match.
    pub(in crate::jobs) fn may_match_below(&self, directory: &Path) -> bool {
        self.scopes.iter().any(|scope| scope.may_contain_matches(directory))
    }
}

impl SearchScope {
    fn from_pattern(pattern: &str) -> SearchScope {
        let beginning = pattern.split('/').take_while(|part| !part.contains(SPECIAL)).map(Into::into).collect();
        // A slash within alternatives makes the depth unknown.
        let is_bounded = !pattern.contains("**") && !pattern.contains('{');
        SearchScope { beginning, depth: is_bounded.then(|| pattern.split('/').count()) }
    }

    fn may_contain_matches(&self, directory: &Path) -> bool {
        let mut names = directory.iter();
        let agrees = self.beginning.iter().zip(names.by_ref()).all(|(wanted, name)| name == wanted.as_str());
        agrees && self.depth.is_none_or(|depth| directory.iter().count() < depth)
    }
}

/// Normalizes a pattern: relative, and the same for a directory with and without a trailing slash.
fn normalize_pattern(pattern: &str) -> &str {
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
        // Like a walk: a match of a directory selects everything in it, if the walk reaches it.
        let ways: Vec<&Path> = path.ancestors().filter(|way| !way.as_os_str().is_empty()).collect();
        let reached = |way: &Path| {
            way.ancestors()
                .skip(1)
                .filter(|above| !above.as_os_str().is_empty())
                .all(|above| patterns.may_match_below(above) || above.ancestors().any(|one| patterns.matches_path(one)))
        };
        refused.is_empty() && ways.iter().any(|way| patterns.matches_path(way) && reached(way))
    }

    /// Patterns match what users expect.
    #[test]
    fn patterns_match_paths() {
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

    /// A walk enters only directories that may contain matches.
    #[test]
    fn patterns_limit_the_walk() {
        let (patterns, _) = Patterns::new(&["*.pt".into(), "out/logs/*.txt".into()]);
        for (directory, may) in
            [("data", false), ("out", true), ("out/logs", true), ("out/logs/x", false), ("out/x", false)]
        {
            assert_eq!(patterns.may_match_below(Path::new(directory)), may, "{directory}");
        }
    }
}
