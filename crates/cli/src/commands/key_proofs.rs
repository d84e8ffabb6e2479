//! `tarn me sshkey prove`: `ssh-keygen` signs a challenge of the engine with the private key, which stays where it is.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use http::Method;
use serde_json::Value;
use tarn_api::ssh_keys::SSHKeyProveRequest;

use crate::commands::Context;
use crate::commands::ssh::spawn_failure;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::text_field;

/// The only namespace in which this client signs, and what every challenge begins with, so that no engine can obtain
/// the signature of anything else.
const NAMESPACE: &str = "tarn-prove";

/// The longest challenge that is signed.
const MAX_CHALLENGE: usize = 256;

/// Proves the saved key that belongs to a file. Returns the response of the engine.
pub(crate) async fn prove_key(ctx: &Context<'_>, path: &Path) -> Result<Value> {
    let path = paths::resolve_path(ctx.environment, path);
    let fingerprint = read_fingerprint(path.clone()).await?;
    let saved = ctx.api.get("/user/ssh-key/list", &[("include_org", true.to_string())]).await?;
    let mut keys = saved["keys"].as_array().into_iter().flatten();
    let Some(key) = keys.find(|key| text_field(key, "fingerprint") == fingerprint) else {
        let public = if path.extension().is_some_and(|end| end == "pub") { "" } else { ".pub" };
        let message = format!(
            "the key {fingerprint} of {file} is not saved; save it with `tarn me sshkey add {file}{public}`",
            file = path.display()
        );
        return Err(Failure::not_found(message));
    };
    let id = text_field(key, "id");
    let segment = paths::encode_segment(id)?;
    let challenge = ctx.api.get(&format!("/user/ssh-key/challenge/{segment}"), &[]).await?;
    let text = checked_challenge(id, &challenge)?;
    let signature = sign(ctx, path, text.clone()).await?;
    let proof = SSHKeyProveRequest { challenge: text, signature };
    ctx.api.send_json(Method::POST, &format!("/user/ssh-key/prove/{segment}"), &proof).await
}

/// Returns the text of a challenge, unless it is something else that an engine wants to have signed.
fn checked_challenge(id: &str, challenge: &Value) -> Result<String> {
    let text = text_field(challenge, "challenge");
    let is_plain = text.len() <= MAX_CHALLENGE && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if text_field(challenge, "namespace") != NAMESPACE || !is_plain || !text.starts_with(&format!("{NAMESPACE} {id} "))
    {
        return Err(Failure::new("the engine sent something that is not a challenge for this key; nothing was signed"));
    }
    Ok(text.to_owned())
}

/// Returns the SHA-256 fingerprint of the key in a file, as `ssh-keygen` prints it. It needs no passphrase.
async fn read_fingerprint(path: PathBuf) -> Result<String> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-l", "-E", "sha256", "-f"]).arg(&path).stderr(Stdio::piped());
    let printed = run_keygen(command, String::new()).await?;
    let text = String::from_utf8_lossy(&printed.stdout);
    match text.split_whitespace().nth(1) {
        Some(fingerprint) if printed.status.success() && fingerprint.starts_with("SHA256:") => {
            Ok(fingerprint.to_owned())
        }
        _ => Err(Failure::usage(format!("{} is not the file of an SSH key", path.display()))),
    }
}

/// Signs a challenge. `ssh-keygen` asks for a passphrase, or for a touch of a security key, by itself.
async fn sign(ctx: &Context<'_>, path: PathBuf, challenge: String) -> Result<String> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"]).arg(&path).stderr(Stdio::inherit());
    let signed = run_keygen(command, challenge).await?;
    match String::from_utf8(signed.stdout) {
        Ok(signature) if signed.status.success() && !signature.is_empty() => Ok(signature),
        _ if ctx.interrupts.is_pressed() => Err(Failure::interrupted("interrupted; the key is not proven")),
        _ => Err(Failure::new(format!(
            "ssh-keygen did not sign with {}; see its message above (OpenSSH 8.1 or later is needed)",
            path.display()
        ))),
    }
}

/// Runs `ssh-keygen` to its end, with a short input.
async fn run_keygen(mut command: Command, input: String) -> Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let running = command.spawn().map_err(|e| spawn_failure("ssh-keygen", &e))?;
    let work = move || write_and_wait(running, &input);
    let finished = tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other).flatten();
    finished.map_err(|e| Failure::with_cause("cannot wait for ssh-keygen", e))
}

fn write_and_wait(mut running: Child, input: &str) -> std::io::Result<Output> {
    if let Some(mut stdin) = running.stdin.take() {
        // A program that ended without reading says why by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    running.wait_with_output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An engine cannot have anything signed but a challenge for the key.
    #[test]
    fn only_challenges_are_signed() {
        let checked = |namespace: &str, text: &str| {
            checked_challenge("k-000000000001", &json!({ "namespace": namespace, "challenge": text })).ok()
        };
        let good = "tarn-prove k-000000000001 1790000000 abcdef";
        assert_eq!(checked("tarn-prove", good).as_deref(), Some(good));
        let long = format!("{good}{}", "0".repeat(MAX_CHALLENGE));
        for (namespace, text) in [
            ("git", good),
            ("tarn-prove", "tarn-prove k-000000000002 1790000000 abcdef"),
            ("tarn-prove", "pay 100"),
            ("tarn-prove", "tarn-prove k-000000000001 1\n2"),
            ("tarn-prove", &long),
            ("tarn-prove", ""),
        ] {
            assert_eq!(checked(namespace, text), None, "{namespace} {text:?}");
        }
    }
}
