//! Programs of the host that the engine runs, and those that its advice mentions.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::findings::Finding;

/// The directories of administration programs; services often run with a search path that lacks some.
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// How long a program may run.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks all programs.
pub async fn tools() -> Vec<Finding> {
    let nft = check_tool("tools.nft", "nft", "--version", "nftables").await;
    let mkfs = check_tool("tools.mkfs_xfs", "mkfs.xfs", "-V", "xfsprogs").await;
    let repair = match find_program("xfs_repair") {
        Some(path) => Finding::ok("tools.xfs_repair", path.display().to_string()),
        None => Finding::note(
            "tools.xfs_repair",
            "xfs_repair, which repairs damaged volumes, is missing",
            "install the package xfsprogs",
        ),
    };
    vec![nft, mkfs, repair]
}

/// Returns the path of a program, if it exists.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

async fn check_tool(check: &'static str, name: &str, version: &str, package: &str) -> Finding {
    let Some(path) = find_program(name) else {
        let what = if name == "nft" { "no cluster gets a network" } else { "there can be no volumes" };
        return Finding::failure(
            check,
            format!("the program {name} is missing: {what}"),
            format!("install the package {package}"),
        );
    };
    match run_program(&path, &[version]).await {
        Ok(message) => {
            Finding::ok(check, format!("{} ({})", path.display(), message.lines().next().unwrap_or_default().trim()))
        }
        Err(why) => Finding::failure(
            check,
            format!("{} does not run: {why}", path.display()),
            format!("install {package} again"),
        ),
    }
}

/// Returns the output of a program, which runs with an empty environment.
pub(super) async fn run_program(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("LC_ALL", "C").current_dir("/").kill_on_drop(true);
    let output = command.stdin(Stdio::null()).output();
    let output =
        tokio::time::timeout(PROGRAM_TIMEOUT, output).await.map_err(|_| "it did not end in time".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let message = String::from_utf8_lossy(&output.stderr);
        Err(tarn_base::plain(message.lines().next().unwrap_or_default(), 200).into_owned())
    }
}
