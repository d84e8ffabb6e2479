//! Which instances have doors to the engine, and the way to them. A door gives no right: who calls through it shows his key.

use tarn_driver::GuestStream;
use tarn_model::ids::InstanceId;
use tarn_store::instances;

use crate::{Control, Error, Result};

/// The instances that run, and which start of each that is.
pub async fn running(control: &Control) -> Result<Vec<(InstanceId, u32)>> {
    control.store().read(instances::running).await.map_err(Error::from)
}

/// A stream to the guest of an instance that was seen to run; the words of an error are for a log.
pub async fn dial(control: &Control, instance: &InstanceId) -> std::result::Result<GuestStream, String> {
    control.driver().connect(instance).await.map_err(|error| error.to_string())
}
