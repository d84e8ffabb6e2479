//! The addresses that the engine listens on: free, in use by the engine, or in use by another program.

use std::net::{SocketAddr, UdpSocket};

use tarn_driver::findings::Finding;

use crate::config::S3Listen;
use crate::doctor::probes::engine_state::{self, EngineState};
use crate::doctor::probes::listening_sockets::{self, ListeningSocket, SocketOwner};
use crate::doctor::target::Target;

/// The name of this program in the process table.
const PROGRAM: &str = "tarn";

/// Checks all addresses.
pub(in crate::doctor) fn check_ports(target: &Target) -> Vec<Finding> {
    let (config, all) = (&target.config, listening_sockets::all_listening_sockets());
    let s3 = match config.s3_listen {
        S3Listen::At(address) => Some(address),
        S3Listen::Nowhere => None,
    };
    let ssh = target.is_local().then_some(config.ssh_listen);
    [
        ("ports.api", Some(config.listen), "the API", "--listen"),
        ("ports.ssh", ssh, "the SSH gateway", "--ssh-listen"),
        ("ports.s3", s3, "S3", "--s3-listen"),
        ("ports.metrics", config.metrics_listen, "the metrics", "--metrics-listen"),
    ]
    .map(|(check, address, what, option)| match address {
        Some(address) => check_port(target, check, address, (what, option), &all),
        None => Finding::ok(check, format!("no port is needed, because {what} is not served")),
    })
    .into()
}

fn check_port(
    target: &Target,
    check: &'static str,
    address: SocketAddr,
    (what, option): (&str, &str),
    all: &[ListeningSocket],
) -> Finding {
    if address.port() == 0 {
        return Finding::ok(check, format!("{what} uses any free port of {}", address.ip()));
    }
    // Binding a UDP socket occupies no TCP port, and shows whether the address belongs to this host.
    if let Err(error) = UdpSocket::bind((address.ip(), 0)) {
        let found = format!("{what} cannot listen on {}, which is not an address of this host: {error}", address.ip());
        return Finding::failure(check, found, format!("give one of the addresses in `ip address` with {option}"));
    }
    let Some(holder) = all.iter().find(|listener| listener.blocks(address)) else {
        return match target.engine_state {
            EngineState::Running { .. } => Finding::warning(
                check,
                format!("an engine runs on this data directory, but nothing listens on {address} for {what}"),
                format!("the engine may have been started with another {option}; give `tarn doctor` the same options"),
            ),
            _ => Finding::ok(check, format!("{address} is free for {what}")),
        };
    };
    let engine = matches!(target.engine_state, EngineState::Running { .. });
    match holder.owner() {
        Some(owner) if is_engine(target, &owner) => {
            Finding::ok(check, format!("the engine (process {}) serves {what} on {address}", owner.pid))
        }
        Some(SocketOwner { pid, program }) => Finding::failure(
            check,
            format!("{address}, which is for {what}, is in use by {program} (process {pid}) on {}", holder.address),
            format!("stop it, or give {what} another address with {option}"),
        ),
        None if engine => Finding::ok(check, format!("{address} is in use, probably by the engine")),
        None => Finding::skipped(
            check,
            format!("{address}, which is for {what}, is in use; this user may not see by which process"),
            "run `tarn doctor` as root",
        ),
    }
}

/// Whether a process is the engine under examination. Replicas on PostgreSQL hold no lock, so their open files decide.
fn is_engine(target: &Target, owner: &SocketOwner) -> bool {
    match target.engine_state {
        EngineState::Running { pid: Some(pid) } => owner.pid == pid,
        EngineState::Running { pid: None } => owner.program == PROGRAM,
        EngineState::Stopped | EngineState::Unknown => {
            let data = &target.data;
            owner.program == PROGRAM
                && target.database_file().is_none()
                && engine_state::has_open(owner.pid, |path| path.starts_with(data))
        }
    }
}
