//! The areas that are examined, in their order, with the names of all checks: a test compares them with the page about them.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tarn_driver::findings::{Finding, Level};
use tarn_driver::local::examine::{self, DiskLocation};
use tarn_model::Clock as _;
use tokio::task::JoinHandle;

use super::patient::{Patient, RUN};
use super::{certificate, configuration, database, drift, engine, keys, ports, registries};
use crate::config::S3Listen;
use crate::environment::SystemClock;

/// How long an area may take. What hangs is a finding, and the others are examined all the same.
const PATIENCE: Duration = Duration::from_secs(45);

type Findings = Pin<Box<dyn Future<Output = Vec<Finding>> + Send>>;

/// An area.
pub(super) struct Area {
    pub(super) name: &'static str,
    /// The names of its checks.
    pub(super) checks: &'static [&'static str],
    /// Whether it needs no configuration.
    pub(super) is_machine: bool,
    /// Whether only who makes instances on this machine needs what it looks at.
    is_of_instances: bool,
    look: fn(Arc<Patient>) -> Findings,
}

/// All of them.
pub(super) const ALL: [Area; 17] = [
    Area {
        name: "kernel",
        checks: &[
            "kernel.version",
            "kernel.overlay",
            "kernel.user_namespaces",
            "kernel.seccomp",
            "kernel.xfs",
            "kernel.loop_devices",
            "kernel.security_modules",
            "kernel.idmapped_mounts",
            "kernel.links",
            "kernel.nf_tables",
        ],
        is_machine: true,
        is_of_instances: true,
        look: |patient| Box::pin(kernel(patient)),
    },
    Area {
        name: "cgroups",
        checks: &["cgroups.version", "cgroups.controllers", "cgroups.swap"],
        is_machine: true,
        is_of_instances: true,
        look: |_| blocking(examine::cgroups),
    },
    Area {
        name: "tools",
        checks: &["tools.nft", "tools.mkfs_xfs", "tools.xfs_repair"],
        is_machine: true,
        is_of_instances: true,
        look: |_| Box::pin(examine::tools()),
    },
    Area {
        name: "process",
        checks: &["process.root", "process.capabilities", "process.environment"],
        is_machine: true,
        is_of_instances: true,
        look: |patient| blocking(move || examine::capabilities(patient.subject())),
    },
    Area {
        name: "limits",
        checks: &[
            "limits.inotify",
            "limits.keys",
            "limits.processes",
            "limits.threads",
            "limits.backlog",
            "limits.files",
        ],
        is_machine: true,
        is_of_instances: false,
        look: |patient| blocking(move || examine::limits(patient.subject())),
    },
    Area {
        name: "clock",
        checks: &["clock.sane", "clock.synchronised"],
        is_machine: true,
        is_of_instances: false,
        look: |_| blocking(|| examine::clock(SystemClock.now())),
    },
    Area {
        name: "gpus",
        checks: &["gpus.driver", "gpus.cdi"],
        is_machine: true,
        is_of_instances: true,
        look: |patient| blocking(move || examine::gpus(&patient.config.cdi())),
    },
    Area {
        name: "network",
        checks: &["network.forwarding", "network.bridge_filter", "network.firewall", "network.addresses"],
        is_machine: false,
        is_of_instances: true,
        look: |patient| Box::pin(network(patient)),
    },
    Area {
        name: "space",
        checks: &["space.data", "space.pool", "space.objects", "space.run"],
        is_machine: false,
        is_of_instances: false,
        look: |patient| blocking(move || places(&patient).iter().map(examine::space).collect()),
    },
    Area {
        name: "configuration",
        checks: &["configuration.readable"],
        is_machine: false,
        is_of_instances: false,
        look: |patient| Box::pin(std::future::ready(vec![configuration::readable(&patient)])),
    },
    Area {
        name: "keys",
        checks: &["keys.data", "keys.secret", "keys.admin"],
        is_machine: false,
        is_of_instances: false,
        look: |patient| blocking(move || keys::look(&patient)),
    },
    Area {
        name: "certificate",
        checks: &[
            "certificate.usable",
            "certificate.valid",
            "certificate.names",
            "certificate.served",
            "certificate.key_file",
        ],
        is_machine: false,
        is_of_instances: false,
        look: |patient| Box::pin(certificate::look(patient)),
    },
    Area {
        name: "ports",
        checks: &["ports.api", "ports.ssh", "ports.s3", "ports.metrics"],
        is_machine: false,
        is_of_instances: false,
        look: |patient| blocking(move || ports::look(&patient)),
    },
    Area {
        name: "registries",
        checks: &["registries.settings", "registries.reachable"],
        is_machine: false,
        is_of_instances: true,
        look: |patient| Box::pin(registries::look(patient)),
    },
    Area {
        name: "database",
        checks: &[
            "database.opens",
            "database.schema",
            "database.integrity",
            "database.server",
            "database.clock",
            "database.master_key",
        ],
        is_machine: false,
        is_of_instances: false,
        look: |patient| Box::pin(database::look(patient)),
    },
    Area {
        name: "engine",
        checks: &["engine.answers", "engine.version", "engine.clock", "engine.metrics"],
        is_machine: false,
        is_of_instances: false,
        look: |patient| Box::pin(engine::look(patient)),
    },
    Area {
        name: "drift",
        checks: &[
            "drift.instances",
            "drift.volumes",
            "drift.leftovers",
            "drift.promises",
            "drift.requests",
            "drift.jobs",
        ],
        is_machine: false,
        is_of_instances: false,
        look: |patient| Box::pin(drift::look(patient)),
    },
];

/// Examines an area. One that panics or hangs is a finding, and not the end.
pub(super) async fn examine(area: &Area, patient: Arc<Patient>) -> Vec<Finding> {
    let is_needed = patient.is_local() || !area.is_of_instances;
    let mut findings = settle(area, tokio::spawn((area.look)(patient)), PATIENCE).await;
    // Whoever makes no instances needs nothing of this.
    for finding in findings.iter_mut().filter(|_| !is_needed) {
        if matches!(finding.level, Level::Warning | Level::Failure) {
            finding.level = Level::Note;
        }
    }
    findings
}

async fn settle(area: &Area, looking: JoinHandle<Vec<Finding>>, patience: Duration) -> Vec<Finding> {
    let stop = looking.abort_handle();
    let (name, checks) = (area.name, area.checks.join(", "));
    match tokio::time::timeout(patience, looking).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => {
            let todo = "tell whoever makes Tarn, with everything that is printed here";
            vec![Finding::failure(name, format!("these checks broke ({error}): {checks}"), todo)]
        }
        Err(_) => {
            stop.abort();
            let found = format!("these checks did not end within {} s: {checks}", patience.as_secs());
            let todo = "a disk, a device or a server may hang: look at the kernel's log (dmesg)";
            vec![Finding::failure(name, found, todo)]
        }
    }
}

/// What blocks has a thread for itself.
fn blocking(look: impl FnOnce() -> Vec<Finding> + Send + 'static) -> Findings {
    Box::pin(async {
        match tokio::task::spawn_blocking(look).await {
            Ok(findings) => findings,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    })
}

async fn kernel(patient: Arc<Patient>) -> Vec<Finding> {
    let subject = patient.subject();
    let mut findings = blocking(move || examine::kernel(subject)).await;
    findings.push(examine::mounts(&patient.helper, &patient.data).await);
    findings.extend(examine::networks().await);
    findings
}

async fn network(patient: Arc<Patient>) -> Vec<Finding> {
    let s3 = match patient.config.s3_listen {
        S3Listen::At(address) => Some(address),
        S3Listen::Nowhere => None,
    };
    let mut listening = [patient.config.listen, patient.config.ssh_listen].into_iter().chain(s3);
    let is_open = listening.any(|address| !address.ip().is_loopback());
    let mut findings = examine::firewall(&patient.data, is_open).await;
    findings.push(examine::addresses(&patient.data).await);
    findings
}

fn places(patient: &Patient) -> Vec<DiskLocation> {
    let place = |check, what, directory: &Path, is_small| DiskLocation {
        check,
        what,
        directory: directory.to_owned(),
        is_small,
    };
    vec![
        place("space.data", "the database, images and the disks of instances", &patient.data, false),
        place("space.pool", "volumes", &patient.pool, false),
        place("space.objects", "objects", &patient.config.objects_directory(), false),
        place("space.run", "sockets of instances", Path::new(RUN), true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_check_and_no_other() {
        let page = include_str!("../../../../docs/operating/doctor.md");
        let listed: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|name| name.contains('.'))
            .collect();
        let known: Vec<&str> = ALL.iter().flat_map(|area| area.checks).copied().collect();
        assert_eq!(listed, known, "docs/operating/doctor.md lists other checks, or in another order");
        for area in &ALL {
            assert!(area.checks.iter().all(|check| check.starts_with(&format!("{}.", area.name))), "{}", area.name);
        }
    }

    #[tokio::test]
    async fn what_breaks_or_hangs_is_a_finding() {
        let broken = settle(&ALL[0], tokio::spawn(async { panic!("broken on purpose") }), PATIENCE).await;
        assert_eq!((broken[0].check, broken[0].level), ("kernel", Level::Failure));
        let hanging = settle(&ALL[1], tokio::spawn(std::future::pending()), Duration::from_millis(1)).await;
        assert!(hanging[0].level == Level::Failure && hanging[0].found.contains("did not end"), "{hanging:?}");
    }
}
