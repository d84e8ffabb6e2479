//! The areas in their order, with the names of all checks. A test compares them with docs/operating/doctor.md.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tarn_driver::findings::{Finding, Level};
use tarn_driver::local::examine::{self, DiskLocation};
use tarn_model::Clock as _;
use tokio::task::JoinHandle;

use super::checks::{
    backups, certificate, configuration, database, drift, engine, keys, ports, private_networks, registries,
};
use super::target::{RUN, Target};
use crate::config::S3Listen;
use crate::environment::SystemClock;

/// The timeout of an area. An area that hangs is a finding, and the others are still examined.
const AREA_TIMEOUT: Duration = Duration::from_secs(45);

type Findings = Pin<Box<dyn Future<Output = Vec<Finding>> + Send>>;

/// A group of checks.
pub(super) struct Area {
    pub(super) name: &'static str,
    pub(super) checks: &'static [&'static str],
    /// Whether the area is about the host and needs no configuration.
    pub(super) is_host: bool,
    /// Whether the area matters only for the local driver, which runs instances on this host.
    only_for_instances: bool,
    check: fn(Arc<Target>) -> Findings,
}

/// All areas.
pub(super) const AREAS: [Area; 18] = [
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
        is_host: true,
        only_for_instances: true,
        check: |target| Box::pin(kernel_findings(target)),
    },
    Area {
        name: "cgroups",
        checks: &["cgroups.version", "cgroups.controllers", "cgroups.swap"],
        is_host: true,
        only_for_instances: true,
        check: |_| run_blocking(examine::cgroups),
    },
    Area {
        name: "tools",
        checks: &["tools.nft", "tools.mkfs_xfs", "tools.xfs_repair", "tools.lxcfs"],
        is_host: true,
        only_for_instances: true,
        check: |target| Box::pin(tool_findings(target)),
    },
    Area {
        name: "process",
        checks: &["process.root", "process.capabilities", "process.environment"],
        is_host: true,
        only_for_instances: true,
        check: |target| run_blocking(move || examine::capabilities(target.subject())),
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
        is_host: true,
        only_for_instances: false,
        check: |target| run_blocking(move || examine::limits(target.subject())),
    },
    Area {
        name: "clock",
        checks: &["clock.sane", "clock.synchronised"],
        is_host: true,
        only_for_instances: false,
        check: |_| run_blocking(|| examine::clock(SystemClock.now())),
    },
    Area {
        name: "gpus",
        checks: &["gpus.driver", "gpus.cdi"],
        is_host: true,
        only_for_instances: true,
        check: |target| run_blocking(move || examine::gpus(&target.config.cdi())),
    },
    Area {
        name: "network",
        checks: &[
            "network.forwarding",
            "network.bridge_filter",
            "network.firewall",
            "network.addresses",
            "network.private",
        ],
        is_host: false,
        only_for_instances: true,
        check: |target| Box::pin(network_findings(target)),
    },
    Area {
        name: "space",
        checks: &["space.data", "space.pool", "space.objects", "space.run"],
        is_host: false,
        only_for_instances: false,
        check: |target| run_blocking(move || space_places(&target).iter().map(examine::space).collect()),
    },
    Area {
        name: "configuration",
        checks: &["configuration.readable"],
        is_host: false,
        only_for_instances: false,
        check: |target| Box::pin(std::future::ready(vec![configuration::check_configuration(&target)])),
    },
    Area {
        name: "keys",
        checks: &["keys.data", "keys.secret", "keys.admin"],
        is_host: false,
        only_for_instances: false,
        check: |target| run_blocking(move || keys::check_keys(&target)),
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
        is_host: false,
        only_for_instances: false,
        check: |target| Box::pin(certificate::check_certificate(target)),
    },
    Area {
        name: "ports",
        checks: &["ports.api", "ports.ssh", "ports.s3", "ports.metrics"],
        is_host: false,
        only_for_instances: false,
        check: |target| run_blocking(move || ports::check_ports(&target)),
    },
    Area {
        name: "registries",
        checks: &["registries.settings", "registries.reachable"],
        is_host: false,
        only_for_instances: true,
        check: |target| Box::pin(registries::check_registries(target)),
    },
    Area {
        name: "database",
        checks: &[
            "database.opens",
            "database.schema",
            "database.integrity",
            "database.server",
            "database.clock",
            "database.host",
            "database.master_key",
            "database.clock_jumps",
        ],
        is_host: false,
        only_for_instances: false,
        check: |target| Box::pin(database::check_database(target)),
    },
    Area {
        name: "backups",
        checks: &["backups.age"],
        is_host: false,
        only_for_instances: false,
        check: |target| run_blocking(move || backups::check_backups(&target)),
    },
    Area {
        name: "engine",
        checks: &["engine.answers", "engine.version", "engine.clock", "engine.metrics"],
        is_host: false,
        only_for_instances: false,
        check: |target| Box::pin(engine::check_engine(target)),
    },
    Area {
        name: "drift",
        checks: &[
            "drift.instances",
            "drift.volumes",
            "drift.leftovers",
            "drift.promises",
            "drift.counts",
            "drift.requests",
            "drift.jobs",
        ],
        is_host: false,
        only_for_instances: false,
        check: |target| Box::pin(drift::check_drift(target)),
    },
];

/// Examines an area. A panic or a timeout becomes a finding.
pub(super) async fn examine_area(area: &Area, target: Arc<Target>) -> Vec<Finding> {
    let is_needed = target.is_local() || !area.only_for_instances;
    let mut findings = await_findings(area, tokio::spawn((area.check)(target)), AREA_TIMEOUT).await;
    // Without the local driver such findings are notes at most.
    for finding in findings.iter_mut().filter(|_| !is_needed) {
        if matches!(finding.level, Level::Warning | Level::Failure) {
            finding.level = Level::Note;
        }
    }
    findings
}

async fn await_findings(area: &Area, task: JoinHandle<Vec<Finding>>, timeout: Duration) -> Vec<Finding> {
    let stop = task.abort_handle();
    let (name, checks) = (area.name, area.checks.join(", "));
    match tokio::time::timeout(timeout, task).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => {
            let todo = "report this to the developers of Tarn, with this whole output";
            vec![Finding::failure(name, format!("these checks crashed ({error}): {checks}"), todo)]
        }
        Err(_) => {
            stop.abort();
            let found = format!("these checks did not end within {} s: {checks}", timeout.as_secs());
            let todo = "a disk, a device or a server may hang; see the kernel log (dmesg)";
            vec![Finding::failure(name, found, todo)]
        }
    }
}

/// Runs a blocking check in a thread of its own.
fn run_blocking(check: impl FnOnce() -> Vec<Finding> + Send + 'static) -> Findings {
    Box::pin(async {
        match tokio::task::spawn_blocking(check).await {
            Ok(findings) => findings,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    })
}

async fn kernel_findings(target: Arc<Target>) -> Vec<Finding> {
    let subject = target.subject();
    let mut findings = run_blocking(move || examine::kernel(subject)).await;
    findings.push(examine::mounts(&target.helper, &target.data).await);
    findings.extend(examine::networks().await);
    findings
}

async fn tool_findings(target: Arc<Target>) -> Vec<Finding> {
    let mut findings = examine::tools().await;
    findings.push(examine::lxcfs(&target.helper, target.config.instances.lxcfs()).await);
    findings
}

async fn network_findings(target: Arc<Target>) -> Vec<Finding> {
    let s3 = match target.config.s3_listen {
        S3Listen::At(address) => Some(address),
        S3Listen::Nowhere => None,
    };
    let mut listening = [target.config.listen, target.config.ssh_listen].into_iter().chain(s3);
    let is_open = listening.any(|address| !address.ip().is_loopback());
    let mut findings = examine::firewall(&target.data, is_open).await;
    findings.push(examine::addresses(&target.data).await);
    findings.push(private_networks::check_private_networks(&target).await);
    findings
}

fn space_places(target: &Target) -> Vec<DiskLocation> {
    let place = |check, what, directory: &Path, is_small| DiskLocation {
        check,
        what,
        directory: directory.to_owned(),
        is_small,
    };
    vec![
        place("space.data", "the database, images and the disks of instances", &target.data, false),
        place("space.pool", "volumes", &target.pool, false),
        place("space.objects", "objects", &target.config.objects_directory(), false),
        place("space.run", "sockets of instances", Path::new(RUN), true),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_every_check() {
        let page = include_str!("../../../../docs/operating/doctor.md");
        let listed: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|name| name.contains('.'))
            .collect();
        let known: Vec<&str> = AREAS.iter().flat_map(|area| area.checks).copied().collect();
        assert_eq!(listed, known, "docs/operating/doctor.md lists other checks, or in another order");
        for area in &AREAS {
            assert!(area.checks.iter().all(|check| check.starts_with(&format!("{}.", area.name))), "{}", area.name);
        }
    }

    #[tokio::test]
    async fn panic_and_timeout_become_findings() {
        let broken = await_findings(&AREAS[0], tokio::spawn(async { panic!("broken on purpose") }), AREA_TIMEOUT).await;
        assert_eq!((broken[0].check, broken[0].level), ("kernel", Level::Failure));
        let hanging = await_findings(&AREAS[1], tokio::spawn(std::future::pending()), Duration::from_millis(1)).await;
        assert!(hanging[0].level == Level::Failure && hanging[0].found.contains("did not end"), "{hanging:?}");
    }
}
