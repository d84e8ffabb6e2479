//! What `tarn --version` says of a build.

use std::path::Path;
use std::process::Command;

#[path = "../../build/version.rs"]
mod build_script;

use build_script::{describe, log_of_head};

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "user.name=x", "-c", "user.email=x@example.org"]).args(arguments);
    // Late on the last day of a year, which is the next one further east.
    command.env("GIT_COMMITTER_DATE", "2026-12-31T23:59:58+00:00").env("TZ", "Pacific/Kiritimati");
    assert!(command.output().unwrap().status.success(), "{arguments:?}");
}

/// A build names its commit and its date, and what is not known is left out.
#[test]
fn version_has_commit_and_date() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path();
    assert_eq!(describe("1.2.3", directory, None), "1.2.3", "there is no repository");
    assert_eq!(describe("1.2.3", directory, Some("86400")), "1.2.3 (1970-01-02)", "an archive of the sources");
    assert_eq!(log_of_head(directory), None);
    git(directory, &["init", "--quiet"]);
    git(directory, &["commit", "--quiet", "--allow-empty", "--message", "first"]);
    let said = describe("1.2.3", directory, None);
    let commit = said.strip_prefix("1.2.3 (").and_then(|rest| rest.strip_suffix(", 2026-12-31)")).unwrap_or(&said);
    assert!(commit.len() >= 10 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{said}");
    assert_eq!(describe("1.2.3", directory, Some("86400")), format!("1.2.3 ({commit}, 1970-01-02)"));
    assert!(log_of_head(directory).is_some_and(|log| log.ends_with("logs/HEAD")));
}
