//! How users log in to instances: the command for a client, the saved keys and their proofs, and the gateway.
//!
//! Start reading at [`command`].

pub mod gateway;
pub mod keys;
pub mod prove;

use tarn_model::Refused;
use tarn_model::clusters::Instance;
use tarn_model::ids::InstanceId;
use tarn_model::lifecycle::State;
use tarn_store::{clusters, instances};

use crate::{Caller, Control, Error, Result};

/// Where clients reach the SSH gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshEndpoint {
    pub host: String,
    pub port: u16,
}

/// A command that a client can execute as it is, with its own arguments appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshCommand {
    /// The command line, without shell features.
    pub command: String,
    /// A note for the user.
    pub message: Option<String>,
}

/// What the `ssh` of the client supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SshClient {
    /// It accepts the host key on its command line (OpenSSH 8.5 and later).
    #[default]
    Pinning,
    /// It does not, and remembers the host key of the first connection.
    Remembering,
}

/// Returns the command that logs in to an instance.
pub async fn command(control: &Control, caller: &Caller, instance: &str, client: SshClient) -> Result<SshCommand> {
    let id: InstanceId = instance.parse()?;
    let read = control.store().read(|tx| -> Result<_> {
        let found = instances::get(tx, &id)?.ok_or_else(|| Error::not_found("instance", instance))?;
        let cluster = clusters::get(tx, &found.cluster)?.ok_or_else(|| Error::not_found("instance", instance))?;
        caller.must_own(&cluster.owner, "instance", instance)?;
        Ok(found)
    });
    let found = read.await?;
    match command_of(control, &found, client) {
        Some(command) => {
            let message = (control.driver().name() == "fake" && control.ssh().is_none()).then(|| {
                "This engine runs the fake driver: the address is made up and nothing listens there.".to_owned()
            });
            Ok(SshCommand { command, message })
        }
        None if matches!(found.state, State::Destroying | State::Destroyed) => Err(Refused::ClusterGone.into()),
        None => Err(Refused::ClusterNotRunning { state: found.state.name() }.into()),
    }
}

/// The user that every instance has.
pub const USER: &str = "ubuntu";

/// Returns the command that logs in to an instance; `None` while it is not running.
///
/// The host key is part of the command, under its own alias, so that `ssh` asks nothing and uses no file. Host keys
/// that it remembers from another engine at the same address do not matter.
pub fn command_of(control: &Control, instance: &Instance, client: SshClient) -> Option<String> {
    let address = instance.private_ip.as_ref().filter(|_| instance.state == State::Running)?;
    let Some(SshEndpoint { host, port }) = control.ssh() else { return Some(format!("ssh {USER}@{address}")) };
    let (id, key) = (&instance.id, control.gateway_public_key());
    Some(match client {
        SshClient::Pinning => format!(
            "ssh -p {port} -o StrictHostKeyChecking=yes -o HostKeyAlias=tarn -o UserKnownHostsFile=/dev/null \
             -o GlobalKnownHostsFile=/dev/null -o \"KnownHostsCommand=/bin/echo tarn {key}\" {id}@{host}"
        ),
        SshClient::Remembering => format!("ssh -p {port} -o StrictHostKeyChecking=accept-new {id}@{host}"),
    })
}
