//! The crates depend on each other only as the design allows; any other dependency fails here.

use std::collections::BTreeMap;
use std::process::Command;

/// The allowed dependencies of each crate. `tarn-base` is below all of them, and every crate may use it.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("tarn-base", &[] as &[_]),
        ("tarn-api", &[]),
        ("tarn-model", &[]),
        ("tarn-link", &[]),
        ("tarn-cli", &["tarn-api"]),
        ("tarn-ssh", &["tarn-link"]),
        ("tarn-guest", &["tarn-link", "tarn-ssh"]),
        ("tarn-store", &["tarn-model"]),
        ("tarn-driver", &["tarn-model", "tarn-link"]),
        ("tarn-objects", &["tarn-model", "tarn-store"]),
        ("tarn-control", &["tarn-model", "tarn-store", "tarn-driver", "tarn-objects", "tarn-link"]),
        (
            "tarn-server",
            &[
                "tarn-api",
                "tarn-model",
                "tarn-store",
                "tarn-driver",
                "tarn-objects",
                "tarn-control",
                "tarn-link",
                "tarn-ssh",
            ],
        ),
        (
            "tarn",
            &[
                "tarn-api",
                "tarn-model",
                "tarn-store",
                "tarn-driver",
                "tarn-objects",
                "tarn-control",
                "tarn-server",
                "tarn-cli",
            ],
        ),
    ])
}

#[test]
fn arrows_are_those_of_the_design() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let args = ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", manifest];
    let output = Command::new(env!("CARGO")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed = allowed();
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), allowed.len(), "a new crate needs a decision record and a line here");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("{name} is a new crate: add a line here"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            let is_for_tests = dependency["kind"].as_str() == Some("dev");
            if other.starts_with("tarn") && other != "tarn-base" && !is_for_tests {
                assert!(allowed.contains(&other), "{name} must not depend on {other}");
            }
        }
    }
}
