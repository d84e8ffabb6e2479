//! The crates that we depend on come from the registry, have licenses that we may distribute, and none of them is banned.
//!
//! `cargo deny` checks the same and more, but takes minutes to compile; `make audit` uses it for advisories.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

/// The licenses that allow what we do with the code: distribute it in a binary under Apache-2.0.
const LICENSES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that must not come in through a dependency, and why.
const BANNED: [(&str, &str); 5] = [
    ("aws-lc-sys", "rustls has one provider, ring"),
    ("openssl-sys", "TLS is rustls"),
    ("native-tls", "TLS is rustls"),
    ("rustables", "its license is the GPL"),
    ("s3s-fs", "it is not meant for production"),
];

/// How many crates may be there in more than one version. A change may lower this number.
const MOST_DUPLICATES: usize = 24;

/// The packages of the lock file for this platform.
fn packages() -> Vec<Value> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let platform = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let args = ["metadata", "--offline", "--locked", "--format-version", "1", "--manifest-path", manifest];
    let output = Command::new(env!("CARGO")).args(args).args(["--filter-platform", platform]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Every crate that is not ours comes from one registry, none from a repository or a path.
#[test]
fn sources_are_one_registry() {
    let all = packages();
    let sources: Vec<&str> = all.iter().filter_map(|package| package["source"].as_str()).collect();
    assert!(sources.len() > 100, "the dependencies are listed");
    assert!(sources.iter().all(|source| source.starts_with("registry+") && source == &sources[0]));
    let ours = all.iter().filter(|package| package["source"].is_null());
    assert!(ours.into_iter().all(|package| package["name"].as_str().unwrap().starts_with("tarn")));
}

/// The license of every crate allows what we do with it.
#[test]
fn licenses_are_allowed() {
    let allowed = |package: &Value| {
        let license = package["license"].as_str()?;
        let parsed = Expression::parse_mode(license, ParseMode::LAX).ok()?;
        let is_allowed = parsed.evaluate(|part| part.license.id().is_some_and(|id| LICENSES.contains(&id.name)));
        is_allowed.then_some(())
    };
    // These have only a file, which a person has read: the license is MIT.
    let read: [&str; 1] = ["rust-criu"];
    for package in packages().iter().filter(|package| allowed(package).is_none()) {
        let (name, license) = (package["name"].as_str().unwrap(), &package["license"]);
        assert!(read.contains(&name), "{name} has the license {license}: may we distribute it?");
    }
}

/// No banned crate is used, and crates do not multiply in several versions.
#[test]
fn no_crate_is_banned_or_multiplied() {
    let mut versions = BTreeMap::<String, usize>::new();
    for package in packages() {
        *versions.entry(package["name"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    for (name, why) in BANNED {
        assert!(!versions.contains_key(name), "{name} is banned: {why}");
    }
    let duplicates: Vec<_> = versions.iter().filter(|(_, count)| **count > 1).map(|(name, _)| name).collect();
    assert!(duplicates.len() <= MOST_DUPLICATES, "{} crates in several versions: {duplicates:?}", duplicates.len());
}
