//! Which instances have a loopback proxy to the engine, and how to reach it. The proxy grants nothing: a client inside
//! the instance needs an API key like any other.

use std::net::IpAddr;

use tarn_driver::GuestStream;
use tarn_model::ids::InstanceId;
use tarn_store::instances;

use crate::{Control, Error, Result};

/// How many instances are read at a time.
const PAGE_SIZE: u32 = 1000;

/// Returns the running instances with their boots.
pub async fn running(control: &Control) -> Result<Vec<(InstanceId, u32)>> {
    let mut running = Vec::new();
    loop {
        let after = running.last().map(|(last, _)| last);
        let page = control.store().read(|tx| instances::running(tx, after, PAGE_SIZE)).await.map_err(Error::from)?;
        let is_last = page.len() < PAGE_SIZE as usize;
        running.extend(page);
        if is_last {
            return Ok(running);
        }
    }
}

/// Returns the address of an instance, if it has one.
pub async fn address(control: &Control, instance: &InstanceId) -> Result<Option<IpAddr>> {
    let found = control.store().read(|tx| instances::get(tx, instance)).await.map_err(Error::from)?;
    Ok(found.and_then(|instance| instance.private_ip?.parse().ok()))
}

/// Connects to the guest of a running instance. The error is a message for the log.
pub async fn dial(control: &Control, instance: &InstanceId) -> std::result::Result<GuestStream, String> {
    control.driver().connect(instance).await.map_err(|error| error.to_string())
}
