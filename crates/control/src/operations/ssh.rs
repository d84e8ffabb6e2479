//! How to log in to an instance.

use tarn_model::Refused;
use tarn_model::clusters::Instance;
use tarn_model::ids::InstanceId;
use tarn_model::lifecycle::State;
use tarn_store::{clusters, instances};

use crate::{Caller, Control, Error, Result};

/// A command that a client can execute as it is, with its own arguments appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshCommand {
    /// The command line, without shell features.
    pub command: String,
    /// A note for the person.
    pub message: Option<String>,
}

/// The command for one instance.
pub async fn command(control: &Control, caller: &Caller, instance: &str) -> Result<SshCommand> {
    let id: InstanceId = instance.parse()?;
    let read = control.store().read(|tx| -> Result<_> {
        let found = instances::get(tx, &id)?.ok_or_else(|| Error::not_found("instance", instance))?;
        let cluster = clusters::get(tx, &found.cluster)?.ok_or_else(|| Error::not_found("instance", instance))?;
        caller.must_own(&cluster.owner, "instance", instance)?;
        Ok(found)
    });
    let found = read.await?;
    match command_of(&found) {
        Some(command) => {
            let message = (control.driver().name() == "fake").then(|| {
                "This engine runs the fake driver: the address is made up and nothing answers there.".to_owned()
            });
            Ok(SshCommand { command, message })
        }
        None if matches!(found.state, State::Destroying | State::Destroyed) => Err(Refused::ClusterGone.into()),
        None => Err(Refused::ClusterNotRunning { state: found.state.name() }.into()),
    }
}

/// The user that every instance has.
pub const USER: &str = "ubuntu";

/// The command that logs in to an instance; `None` while it does not run.
pub fn command_of(instance: &Instance) -> Option<String> {
    let address = instance.private_ip.as_ref().filter(|_| instance.state == State::Running)?;
    Some(format!("ssh {USER}@{address}"))
}
