//! The rooms of the house know each other only along the arrows of the design; any other arrow fails here.

use std::collections::BTreeMap;
use std::process::Command;

/// Who may know whom. `tarn` puts everything together and may know all.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("tarn-api", &[] as &[_]),
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
fn the_arrows_are_those_of_the_design() {
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
        let may_know = allowed.get(name).unwrap_or_else(|| panic!("{name} is a new room: give it a line here"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            let is_for_tests = dependency["kind"].as_str() == Some("dev");
            if other.starts_with("tarn") && !is_for_tests {
                assert!(may_know.contains(&other), "{name} must not know {other}");
            }
        }
    }
}
