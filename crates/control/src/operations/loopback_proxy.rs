//! Which instances have a loopback proxy to the engine, and how to reach it. The proxy grants nothing: a client inside
//! the instance needs an API key like any other.

use tarn_driver::GuestStream;
use tarn_model::ids::InstanceId;
use tarn_store::instances;

use crate::{Control, Error, Result};

/// Returns the running instances with their boots.
pub async fn running(control: &Control) -> Result<Vec<(InstanceId, u32)>> {
    control.store().read(instances::running).await.map_err(Error::from)
}

/// Connects to the guest of a running instance. The error is a message for the log.
pub async fn dial(control: &Control, instance: &InstanceId) -> std::result::Result<GuestStream, String> {
    control.driver().connect(instance).await.map_err(|error| error.to_string())
}
