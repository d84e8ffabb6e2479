//! The shell that runs the commands, and its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use tarn_link::{Image, JobOrder, Session};

use crate::jobs::paths::{HOSTS_FILE, JobPaths, SCRIPT_FILE};
use crate::process::spawn::run_as_user_in_required;
use crate::session::environment;
use crate::users::Account;
use crate::users::images;

/// Possible shells, the best first.
const SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"];

/// The error for an image without a shell.
const NO_SHELL: &str =
    "the image has no shell (/bin/bash or /bin/sh), which the commands of a job need; use one that has";

/// Variables that a job may not set: they identify the user.
const PROTECTED_VARIABLES: [&str; 4] = ["HOME", "USER", "LOGNAME", "SHELL"];

/// Starts the shell as the user, in the directory of the job.
pub(super) fn start_shell(
    root: &Path,
    (account, image): (&Account, Option<&Image>),
    paths: &JobPaths,
    order: &JobOrder,
    output: OwnedFd,
) -> io::Result<Pid> {
    limit_processes();
    let shell = match image {
        Some(_) => images::find_shell(root, None).ok_or_else(|| io::Error::other(NO_SHELL))?,
        None => SHELLS.iter().map(PathBuf::from).find(|shell| shell.exists()).unwrap_or_else(|| "/bin/sh".into()),
    };
    let mut command = Command::new(shell);
    command.arg(paths.user_files_directory().join(SCRIPT_FILE)).env_clear().envs(shell_variables(
        root,
        (account, image),
        paths,
        order,
    ));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    run_as_user_in_required(&mut command, account, &paths.working_directory(account))?;
    Ok(Pid::from_child(&command.spawn()?))
}

/// Builds the variables. In increasing precedence: those of a session, those of the job, and those that identify the
/// job.
fn shell_variables(
    root: &Path,
    (account, image): (&Account, Option<&Image>),
    paths: &JobPaths,
    order: &JobOrder,
) -> BTreeMap<OsString, OsString> {
    let mut all = environment::build_environment(root, account, image, &Session::default(), None, None);
    all.insert("PYTHONUNBUFFERED".into(), "1".into());
    let wanted = order.environment.iter().filter(|(name, _)| !PROTECTED_VARIABLES.contains(&name.as_str()));
    all.extend(wanted.map(|(name, value)| (name.into(), value.into())));
    all.insert("TP_JOB_ID".into(), paths.job().into());
    all.insert("TP_HOSTFILE".into(), paths.user_files_directory().join(HOSTS_FILE).into());
    all
}

/// Limits the processes of a job: a job that starts processes without end must leave some for ending it.
fn limit_processes() {
    let now = getrlimit(Resource::Nproc);
    let wanted = now.maximum.map(|maximum| (maximum / 4 * 3).max(1));
    // If this fails, only the limit of the instance applies.
    let _ = setrlimit(Resource::Nproc, Rlimit { current: wanted, maximum: wanted });
}
