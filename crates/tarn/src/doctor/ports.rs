//! The addresses that an engine listens on: free, its own already, or somebody else's.

use std::net::{SocketAddr, UdpSocket};

use tarn_driver::findings::Finding;

use super::listeners::{self, Listener, Owner};
use super::patient::Patient;
use super::running::{self, Running};
use crate::config::S3Listen;

/// The name by which this program runs.
const PROGRAM: &str = "tarn";

/// Looks at all of them.
pub(super) fn look(patient: &Patient) -> Vec<Finding> {
    let (config, all) = (&patient.config, listeners::all());
    let s3 = match config.s3_listen {
        S3Listen::At(address) => Some(address),
        S3Listen::Nowhere => None,
    };
    let ssh = patient.is_local().then_some(config.ssh_listen);
    [
        ("ports.api", Some(config.listen), "the API", "--listen"),
        ("ports.ssh", ssh, "the SSH gateway", "--ssh-listen"),
        ("ports.s3", s3, "S3", "--s3-listen"),
        ("ports.metrics", config.metrics_listen, "the metrics", "--metrics-listen"),
    ]
    .map(|(check, address, what, option)| match address {
        Some(address) => judge(patient, check, address, (what, option), &all),
        None => Finding::ok(check, format!("no port is needed: {what} would not be served")),
    })
    .into()
}

fn judge(
    patient: &Patient,
    check: &'static str,
    address: SocketAddr,
    (what, option): (&str, &str),
    all: &[Listener],
) -> Finding {
    if address.port() == 0 {
        return Finding::ok(check, format!("{what} takes any port of {}", address.ip()));
    }
    // A socket of another kind takes no port from anybody, and tells whether the address is one of this machine.
    if let Err(error) = UdpSocket::bind((address.ip(), 0)) {
        let found = format!("{what} cannot listen at {}, which is no address of this machine: {error}", address.ip());
        return Finding::failure(check, found, format!("give one of `ip address` as {option}"));
    }
    let Some(holder) = all.iter().find(|listener| listener.is_in_the_way_of(address)) else {
        return match patient.running {
            Running::Here { .. } => Finding::warning(
                check,
                format!("an engine runs on this data, but nobody listens at {address} for {what}"),
                format!("it may have been started with another {option}; give `tarn doctor` the same options"),
            ),
            _ => Finding::ok(check, format!("{address} is free for {what}")),
        };
    };
    let engine = matches!(patient.running, Running::Here { .. });
    match holder.owner() {
        Some(owner) if is_engine(patient, &owner) => {
            Finding::ok(check, format!("the engine (process {}) serves {what} at {address}", owner.pid))
        }
        Some(Owner { pid, program }) => Finding::failure(
            check,
            format!("{address}, which is for {what}, is taken by {program} (process {pid}) at {}", holder.address),
            format!("stop it, or give {what} another address with {option}"),
        ),
        None if engine => Finding::ok(check, format!("{address} is taken, by the engine as it seems")),
        None => Finding::skipped(
            check,
            format!("{address}, which is for {what}, is taken; by whom is not seen by this user"),
            "run `tarn doctor` as root",
        ),
    }
}

/// Whether a process is the engine that is examined. Replicas on a database server hold no lock that would tell.
fn is_engine(patient: &Patient, owner: &Owner) -> bool {
    match patient.running {
        Running::Here { pid: Some(pid) } => owner.pid == pid,
        Running::Here { pid: None } => owner.program == PROGRAM,
        Running::Nowhere | Running::Unknown => {
            let data = &patient.data;
            owner.program == PROGRAM
                && patient.database_file().is_none()
                && running::opens(owner.pid, |path| path.starts_with(data))
        }
    }
}
