//! Builds the guest, the statically linked init program of every instance, so that `src/serve/guest.rs` can embed it.
//!
//! A build script is needed, because cargo cannot yet depend on the binary of another package. It uses a target
//! directory inside ours, because cargo locks the directory that it builds in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    for part in ["crates/base", "crates/guest", "crates/link", "crates/ssh", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    // target/<profile>/build/tarn-<hash>/out
    let target = out.ancestors().nth(4).expect("cargo's output directory is four levels deep").join("guest");
    let triple = variable("TARGET");
    let profile = if variable("PROFILE") == "release" { "guest" } else { "guest-dev" };
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(&root).args(["build", "--quiet", "--locked", "--package", "tarn-guest", "--profile", profile]);
    // With an explicit target the flags below do not apply to build scripts and macros.
    cargo.args(["--target", &triple, "--target-dir"]).arg(&target);
    // Variables of the outer cargo must not reach the inner one, above all those that replace the compiler with clippy.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let inherited = name.starts_with("CARGO_") || name.starts_with("RUSTC") || name.starts_with("RUSTFLAGS");
        if inherited && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&&*name) && !name.starts_with("CARGO_REGISTR") {
            cargo.env_remove(&*name);
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    let status = cargo.status().expect("cannot run cargo");
    assert!(status.success(), "cannot build the guest");
    let built = target.join(&triple).join(profile).join("tarn-guest");
    fs::copy(&built, out.join("tarn-guest")).expect("cannot copy the guest");
}

#[allow(clippy::disallowed_methods, reason = "cargo passes everything to a build script in its environment")]
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
