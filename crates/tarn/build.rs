//! Builds the guest, the statically linked init program of every instance, so that `src/serve/startup/guest.rs` can embed it.
//!
//! It also sets `TARN_VERSION`, which `tarn --version` prints.
//!
//! A build script is needed, because cargo cannot yet depend on the binary of another package. It uses a target
//! directory inside ours, because cargo locks the directory that it builds in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[path = "build/version.rs"]
mod version;

fn main() {
    println!("cargo::rustc-env=TARN_VERSION={}", built_version(Path::new(&variable("CARGO_MANIFEST_DIR"))));
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
    // Compressed it is a third of its size. A debug build is compressed quickly instead of well.
    let level = if profile == "guest" { 19 } else { 1 };
    let guest = zstd::bulk::compress(&fs::read(&built).expect("cannot read the guest"), level);
    fs::write(out.join("tarn-guest.zst"), guest.expect("cannot compress the guest")).expect("cannot write the guest");
}

/// The version with the commit and the date that were built. A debug build names neither: a commit must not make all
/// who test build again. Without git, as from an archive of the sources, `SOURCE_DATE_EPOCH` gives the date if it is set.
fn built_version(directory: &Path) -> String {
    let version = variable("CARGO_PKG_VERSION");
    if variable("PROFILE") != "release" {
        return format!("{version} (debug build)");
    }
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    if let Some(log) = version::log_of_head(directory) {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let epoch = env::var_os("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.into_string().ok());
    version::describe(&version, directory, epoch.as_deref())
}

#[allow(clippy::disallowed_methods, reason = "cargo passes everything to a build script in its environment")]
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
