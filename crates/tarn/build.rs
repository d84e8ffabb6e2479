//! Builds the guest, the static program that is the init of every instance, so that `src/guest.rs` can embed it.
//!
//! A build script, because cargo cannot yet depend on the finished binary of another package. It has a target directory of its
//! own inside ours: cargo holds a lock on the directory it builds in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    for part in ["crates/guest", "crates/link", "crates/ssh", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    // target/<profile>/build/tarn-<hash>/out
    let target = out.ancestors().nth(4).expect("cargo's output directory is four levels deep").join("guest");
    let triple = variable("TARGET");
    let mut cargo = Command::new(variable("CARGO"));
    let profile = if variable("PROFILE") == "release" { "guest" } else { "guest-dev" };
    cargo.current_dir(&root).args(["build", "--quiet", "--locked", "--package", "tarn-guest", "--profile", profile]);
    // Named although it is the usual one: only then do the flags below leave build scripts and macros alone.
    cargo.args(["--target", &triple, "--target-dir"]).arg(&target);
    // What the outer cargo says to this script is not meant for the inner one, above all not clippy in the compiler's place.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let inherited = name.starts_with("CARGO_") || name.starts_with("RUSTC") || name.starts_with("RUSTFLAGS");
        if inherited && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&&*name) && !name.starts_with("CARGO_REGISTR") {
            cargo.env_remove(&*name);
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the guest could not be built");
    let built = target.join(&triple).join(profile).join("tarn-guest");
    fs::copy(&built, out.join("tarn-guest")).expect("the guest was built");
}

#[allow(clippy::disallowed_methods, reason = "a build script is told everything by its environment")]
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
