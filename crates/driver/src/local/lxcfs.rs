//! lxcfs of the host, a filesystem whose files show every instance its own share of the host, if it is mounted and
//! answers. The driver neither starts nor ends it.
//!
//! When it is restarted, what running instances have of the earlier one is dead; when it hangs, programs that read its
//! files hang. [`restore_files`] repairs both, as it shows the files in instances that were started before lxcfs. Which
//! lxcfs an instance shows is in the kernel's table of its mounts, which can be read without asking lxcfs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use crate::local::helper::lxcfs::{FILES, KIND, LAST, shown_devices};
use crate::local::helper::order::{self, Order, Report, ShowLxcfs};
use crate::local::helper_process::HelperProcess;
use crate::local::host::mount_tables::{self, Mount};
use crate::local::host::processes::Process;
use crate::local::instance::record::Record;
use crate::local::local_host::LocalHost;

/// How long lxcfs may take to answer.
pub(in crate::local) const TIMEOUT: Duration = Duration::from_secs(2);

/// How long a helper may take to change what an instance shows.
const SHOW_TIMEOUT: Duration = Duration::from_secs(5);

/// After how many looks without an answer in a row its files are removed from instances. A busy host may cause one.
const MAX_SILENT_LOOKS: u32 = 3;

/// What was found at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local) enum Found {
    /// It is not mounted, or its program has ended.
    Absent,
    /// It answers; the number is the one of its device.
    Answers(u64),
    /// It is mounted and does not answer.
    Silent,
}

/// The lxcfs of this host.
pub(in crate::local) struct Lxcfs {
    /// Where it is mounted; `None` if instances are to show the whole host.
    directory: Option<PathBuf>,
    last: Mutex<Last>,
}

struct Last {
    found: Found,
    /// The number of looks without an answer in a row.
    silent: u32,
    /// The helper that got no answer. Until it has ended there is no other.
    stuck: Option<Box<HelperProcess>>,
}

impl Lxcfs {
    pub(in crate::local) fn new(directory: Option<PathBuf>) -> Self {
        Lxcfs { directory, last: Mutex::new(Last { found: Found::Absent, silent: 0, stuck: None }) }
    }

    /// Returns what an instance that is being started shows, if lxcfs is mounted. That it answers is found out then,
    /// unless it is known that it does not.
    pub(in crate::local) fn for_start(&self) -> Option<order::Lxcfs> {
        if self.last.lock().found == Found::Silent {
            return None;
        }
        self.mounted().ok().flatten()
    }

    fn mounted(&self) -> io::Result<Option<order::Lxcfs>> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let device = mounted_device(directory)?;
        Ok(device.map(|device| order::Lxcfs { directory: directory.clone(), device }))
    }

    /// Looks whether lxcfs is mounted and answers.
    async fn look(&self, host: &LocalHost) -> io::Result<Option<order::Lxcfs>> {
        let mounted = self.mounted()?;
        let stuck = self.last.lock().stuck.take();
        // While the helper of an earlier look waits, there is no answer to expect.
        let stuck = stuck.and_then(|mut stuck| if stuck.has_ended() { None } else { Some(stuck) });
        let (found, stuck) = match (&mounted, stuck) {
            (None, stuck) => (Found::Absent, stuck),
            (Some(_), Some(stuck)) => (Found::Silent, Some(stuck)),
            (Some(lxcfs), None) => match ask(&host.helper, &lxcfs.directory).await {
                Ok(Ok(())) => (Found::Answers(lxcfs.device), None),
                Ok(Err(_)) => (Found::Absent, None),
                Err(stuck) => (Found::Silent, Some(stuck)),
            },
        };
        let mut last = self.last.lock();
        log_change(last.found, found);
        last.silent = if found == Found::Silent { last.silent.saturating_add(1) } else { 0 };
        (last.found, last.stuck) = (found, stuck);
        Ok(mounted.filter(|_| matches!(found, Found::Answers(_))))
    }

    /// Returns whether lxcfs may be about to answer.
    fn is_to_be_waited_for(&self) -> bool {
        let last = self.last.lock();
        last.found == Found::Silent && last.silent < MAX_SILENT_LOOKS
    }
}

fn log_change(before: Found, now: Found) {
    if before == now {
        return;
    }
    match now {
        Found::Answers(_) => tracing::info!("lxcfs answers: instances see their own share of the host"),
        Found::Absent => tracing::warn!("lxcfs has ended: instances see memory and load of the whole host"),
        Found::Silent => tracing::warn!("lxcfs does not answer: programs in instances that ask it wait for it"),
    }
}

/// The device of lxcfs, if it is mounted at this path.
pub(in crate::local) fn mounted_device(directory: &Path) -> io::Result<Option<u64>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    // The last one covers the others.
    let here = mount_tables::parse_mounts(&table).filter(|mount| mount.path == directory && mount.kind == KIND);
    Ok(here.last().map(|mount| mount.device))
}

/// Has a helper read the files of lxcfs. The error is the helper that got no answer; it is killed, and may not end.
pub(in crate::local) async fn ask(
    helper: &[std::ffi::OsString],
    directory: &Path,
) -> Result<io::Result<()>, Box<HelperProcess>> {
    run_helper(helper, &Order::ReadLxcfs(directory.to_owned()), TIMEOUT).await
}

/// Runs a helper that may wait for lxcfs.
async fn run_helper(
    helper: &[std::ffi::OsString],
    order: &Order,
    timeout: Duration,
) -> Result<io::Result<()>, Box<HelperProcess>> {
    let mut helper = match HelperProcess::spawn_program(helper) {
        Ok(helper) => helper,
        Err(error) => return Ok(Err(error)),
    };
    let call = async {
        helper.send_order(order).await?;
        match helper.read_report().await? {
            Report::Done => Ok(()),
            _ => Err(io::Error::other("the helper sent an unexpected report")),
        }
    };
    match tokio::time::timeout(timeout, call).await {
        Ok(answer) => {
            // It has sent its last report, so nothing keeps it from ending.
            helper.finish(true).await;
            Ok(answer)
        }
        Err(_) => {
            helper.kill();
            Err(Box::new(helper))
        }
    }
}

/// Lets every running instance show the files of the lxcfs that answers now, and of no other. Failures are logged: the
/// next call tries again.
pub(in crate::local) async fn restore_files(host: &LocalHost) {
    let records: Vec<Record> = host.records().values().cloned().collect();
    if records.is_empty() {
        return;
    }
    let wanted = match host.lxcfs.look(host).await {
        Ok(wanted) => wanted,
        Err(error) => return tracing::warn!(%error, "the mounts of the host cannot be read"),
    };
    if host.lxcfs.is_to_be_waited_for() {
        return;
    }
    for record in records {
        let Some(process) = &record.process else { continue };
        if is_as_wanted(process, wanted.as_ref()) {
            continue;
        }
        // An instance that is being started, stopped or changed is left alone until the next call.
        let Some(_guard) = host.try_lock(&record.id) else { continue };
        let order = Order::ShowLxcfs(ShowLxcfs { process: process.clone(), lxcfs: wanted.clone() });
        match run_helper(&host.helper, &order, SHOW_TIMEOUT).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, instance = %record.id, "the files of lxcfs cannot be shown"),
            Err(stuck) => {
                tracing::warn!(instance = %record.id, "the files of lxcfs cannot be shown: it does not answer");
                host.lxcfs.last.lock().stuck = Some(stuck);
                return;
            }
        }
    }
}

/// Returns whether an instance shows what it should. One that has ended shows nothing.
fn is_as_wanted(process: &Process, wanted: Option<&order::Lxcfs>) -> bool {
    let Ok(Some(mounts)) = mount_tables::mounts_of(process) else { return true };
    shows(&mounts, wanted.map(|lxcfs| lxcfs.device))
}

/// Returns whether these mounts show the files of the wanted lxcfs, and of no other.
fn shows(mounts: &[Mount], wanted: Option<u64>) -> bool {
    let all = FILES.iter().flat_map(|file| shown_devices(mounts, file));
    let mut others = all.filter(|device| Some(*device) != wanted);
    others.next().is_none() && shown_devices(mounts, LAST) == wanted.into_iter().collect::<Vec<_>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(of: &[(&str, u64)]) -> Vec<Mount> {
        let mount = |(path, device): &(&str, u64)| Mount { device: *device, path: path.into(), kind: KIND.to_vec() };
        let other = Mount { device: 9, path: "/proc/meminfo".into(), kind: b"proc".to_vec() };
        of.iter().map(mount).chain([other]).collect()
    }

    /// Dead files of an earlier lxcfs are found, as are missing and doubled ones.
    #[test]
    fn only_files_of_wanted_lxcfs_are_right() {
        let shown = |of: &[(&str, u64)], wanted| shows(&mounts(of), wanted);
        let both = [("/proc/uptime", 41), ("/proc/meminfo", 41)];
        assert!(shown(&[], None) && shown(&both, Some(41)));
        assert!(!shown(&both, None) && !shown(&both, Some(42)) && !shown(&[], Some(41)));
        assert!(!shown(&[("/proc/uptime", 40), ("/proc/meminfo", 41)], Some(41)), "one is of another");
        assert!(!shown(&[("/proc/uptime", 41)], Some(41)), "the last one is missing");
        assert!(!shown(&[both[0], both[1], both[1]], Some(41)), "twice");
    }

    #[test]
    fn plain_directory_is_no_lxcfs() {
        assert_eq!(mounted_device(Path::new("/proc")).unwrap(), None);
        let lxcfs = Lxcfs::new(Some("/proc".into()));
        assert_eq!(lxcfs.for_start(), None);
        assert_eq!(Lxcfs::new(None).for_start(), None);
    }
}
