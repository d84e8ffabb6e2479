//! The shell that runs the commands: what it finds around it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tarn_link::{Image, JobOrder, Session};

use crate::accounts::Account;
use crate::images;
use crate::jobs::places::{HOSTS, Place, SCRIPT};
use crate::session::environment;
use crate::spawn::run_in;

/// Where a shell may be, the best first.
const SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"];

/// Why an image may run no jobs.
const NO_SHELL: &str =
    "the image has no shell (/bin/bash or /bin/sh), which the commands of a job need; use one that has";

/// What a job may not set: it says who the user is.
const KEPT: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// Starts the shell as the user, in the directory of the job.
pub(super) fn start(
    root: &Path,
    (account, image): (&Account, Option<&Image>),
    place: &Place,
    order: &JobOrder,
    output: OwnedFd,
) -> io::Result<Pid> {
    leave_processes_to_others();
    let shell = match image {
        Some(_) => images::shell(root, None).ok_or_else(|| io::Error::other(NO_SHELL))?,
        None => SHELLS.iter().map(PathBuf::from).find(|shell| shell.exists()).unwrap_or_else(|| "/bin/sh".into()),
    };
    let mut command = Command::new(shell);
    command.arg(place.shown().join(SCRIPT)).env_clear().envs(variables(root, (account, image), place, order));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    run_in(&mut command, account, &place.working(account))?;
    Ok(Pid::from_child(&command.spawn()?))
}

/// What sessions have, over it what the job wants, over it what says who and which job it is.
fn variables(
    root: &Path,
    (account, image): (&Account, Option<&Image>),
    place: &Place,
    order: &JobOrder,
) -> BTreeMap<OsString, OsString> {
    let mut all = environment::build(root, account, image, &Session::default(), None, None);
    all.insert("PYTHONUNBUFFERED".into(), "1".into());
    let wanted = order.environment.iter().filter(|(name, _)| !KEPT.contains(&name.as_str()));
    all.extend(wanted.map(|(name, value)| (name.into(), value.into())));
    all.insert("TP_JOB_ID".into(), place.job().into());
    all.insert("TP_HOSTFILE".into(), place.shown().join(HOSTS).into());
    all
}

/// A job that starts processes without end must not keep the instance from starting one to end it.
fn leave_processes_to_others() {
    let now = getrlimit(Resource::Nproc);
    let wanted = now.maximum.map(|maximum| (maximum / 4 * 3).max(1));
    // Where it cannot be set, the limit of the instance holds alone.
    let _ = setrlimit(Resource::Nproc, Rlimit { current: wanted, maximum: wanted });
}
