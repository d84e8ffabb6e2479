//! Starts an attempt: writes what must be on disk, and starts the supervisor.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::pipe::PipeFlags;
use tarn_link::{Image, JobOrder};

use crate::filesystem::{Owner, open_directory, open_or_create_below, replace_file};
use crate::jobs::attempts::Failure;
use crate::jobs::attempts::attempt::{Attempt, Stage, SupervisorLink};
use crate::jobs::helper_process::ChildProcess;
use crate::jobs::paths::{HOSTS_FILE, JOBS_DIRECTORY, JobPaths, LOG_FILE, ORDER_FILE, SCRIPT_FILE};
use crate::jobs::registry::Job;
use crate::jobs::removal::remove_path;
use crate::jobs::supervisor::messages::SupervisorChannel;
use crate::jobs::supervisor::monitor::AttemptMonitor;
use crate::jobs::supervisor::{IN_INSTANCE, processes};
use crate::link_service::Guest;
use crate::users::Account;

/// The capacity of the output pipe, if the kernel allows it.
const PIPE_SIZE: usize = 1 << 20;

/// Creates the guest's directory of a job.
pub(in crate::jobs) fn create_state_directory(paths: &JobPaths) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(paths.state_directory())
}

/// Creates the directory in which the commands run, without following a link of the user.
pub(in crate::jobs) fn create_working_directory(paths: &JobPaths, account: &Account) -> io::Result<OwnedFd> {
    let owner = Owner { account: Some(account), mode: Mode::from_raw_mode(0o755) };
    let directories = open_or_create_below(open_directory(&account.home)?, JOBS_DIRECTORY, owner)?;
    open_or_create_below(directories, paths.job(), owner)
}

/// Refuses to start anything while the instance is stopping.
pub(in crate::jobs) fn refuse_while_stopping(guest: &Guest) -> Result<(), Failure> {
    if guest.jobs.is_stopping() { Err(Failure::temporary("the node is being stopped")) } else { Ok(()) }
}

/// Starts an attempt whose files are in place. After a failure nothing of the attempt is left.
pub(in crate::jobs) async fn start_attempt(
    guest: &Arc<Guest>,
    paths: &JobPaths,
    job: &Arc<Job>,
    order: &JobOrder,
) -> Result<Arc<Attempt>, Failure> {
    let failed = |e: io::Error| Failure::from_io_error("the job could not be started", &e);
    let account = guest.account().map_err(failed)?;
    let directory = paths.attempt_directory(order.attempt);
    // An unknown directory of this attempt is left over from a discarded one.
    remove_path(guest, &directory).await.map_err(failed)?;
    // There is no await from here until the attempt is registered, so it is told if the instance stops after this
    // check.
    refuse_while_stopping(guest)?;
    let started = write_attempt_files(paths, &account, order)
        .and_then(|()| start_supervisor(guest, paths, &account, job, order.attempt));
    if started.is_err() {
        // If this fails, the attempt has an order and no outcome, and counts as lost after a restart.
        let _ = remove_path(guest, &directory).await;
    }
    started.map_err(failed)
}

/// Writes the files that the supervisor and the commands need.
fn write_attempt_files(paths: &JobPaths, account: &Account, order: &JobOrder) -> io::Result<()> {
    create_working_directory(paths, account)?;
    let user_files = paths.all_user_files_directory();
    DirBuilder::new().recursive(true).mode(0o755).create(&user_files)?;
    let private = Owner { account: Some(account), mode: Mode::RWXU };
    let user_files = open_or_create_below(open_directory(&user_files)?, paths.job(), private)?;
    let hosts: String = order.hosts.iter().map(|host| format!("{host}\n")).collect();
    let readable = Owner { account: Some(account), mode: Mode::RUSR | Mode::WUSR };
    replace_file(&user_files, HOSTS_FILE, hosts.as_bytes(), readable)?;
    let venv = order.venv.then(|| paths.venv_directory(account));
    replace_file(&user_files, SCRIPT_FILE, build_script(&order.commands, venv.as_deref()).as_bytes(), readable)?;
    let directory = paths.attempt_directory(order.attempt);
    DirBuilder::new().mode(0o700).create(&directory)?;
    File::options().write(true).create_new(true).mode(0o600).open(directory.join(LOG_FILE))?;
    let own = Owner { account: None, mode: Mode::RUSR | Mode::WUSR };
    replace_file(open_directory(&directory)?, ORDER_FILE, &serde_json::to_vec(order)?, own)
}

/// Starts the supervisor.
fn start_supervisor(
    guest: &Arc<Guest>,
    paths: &JobPaths,
    account: &Account,
    job: &Arc<Job>,
    number: u32,
) -> io::Result<Arc<Attempt>> {
    let directory = paths.attempt_directory(number);
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // The kernel limits the total pipe size of a user; a smaller pipe works as well.
    let _ = rustix::pipe::fcntl_setpipe_size(&read, PIPE_SIZE);
    let (channel, theirs) = SupervisorChannel::pair()?;
    let mut command = Command::new(&guest.settings.helper);
    command.arg0("tarn-guest").arg("job-supervisor").arg(&directory).arg(&guest.settings.root);
    command.arg(&guest.settings.user).arg(if guest.settings.is_init { IN_INSTANCE } else { "elsewhere" });
    command.env_clear().process_group(0);
    if let Some(image) = &guest.settings.image {
        command.env(Image::VARIABLE, serde_json::to_string(image)?);
    }
    command.stdin(theirs).stdout(write).stderr(read.try_clone()?);
    let channel = Arc::new(channel);
    let supervisor_link = SupervisorLink { pipe: read, channel: channel.clone() };
    let attempt = Arc::new(Attempt::open(directory, Stage::Starting, Some(supervisor_link))?);
    let supervisor = ChildProcess::start(guest, &mut command)?;
    // The command holds the supervisor's ends; while they are open, its death goes unnoticed.
    drop(command);
    job.add_attempt(number, attempt.clone());
    let monitor = AttemptMonitor {
        guest: guest.clone(),
        job: job.clone(),
        number,
        attempt: attempt.clone(),
        channel,
        supervisor,
        freezable: processes::freezable_user(account.uid, guest.settings.is_init),
    };
    tokio::spawn(monitor.monitor_attempt(paths.job().to_owned()));
    Ok(attempt)
}

/// Creates a virtual environment and gives it a `pip`.
const MAKE_VENV: &str = include_str!("venv.py");

/// Builds the script that the shell of an attempt runs; `venv` is the directory of the virtual environment, if the job
/// has one.
///
/// All commands share one shell, so that `cd`, `export` and `set -e` of one affect the next. Each is run by `eval`, so
/// that a syntax error fails only its own command. The status is checked on a separate line, because `set -e` has no
/// effect on the left of `||`.
fn build_script(commands: &[String], venv: Option<&Path>) -> String {
    let mut text = venv.map(venv_prelude).unwrap_or_default();
    for command in commands {
        text.push_str("eval ");
        text.push_str(&shell_quote(command));
        text.push_str("\ncase $? in 0) ;; *) exit $? ;; esac\n");
    }
    text
}

/// Creates the virtual environment unless an earlier attempt did, and activates it.
fn venv_prelude(venv: &Path) -> String {
    let path = shell_quote(&venv.to_string_lossy());
    let make = shell_quote(MAKE_VENV);
    format!(
        "if [ -x {path}/bin/python3 ]; then :\n\
         elif command -v uv >/dev/null 2>&1 && uv venv --quiet --system-site-packages {path}; then \
         {path}/bin/python3 -I -c {make} {path}\n\
         elif command -v python3 >/dev/null 2>&1; then \
         python3 -I -c {make} {path} || echo 'tarn: the virtual environment could not be made.'\n\
         else echo 'tarn: there is no python3 here, and so no virtual environment.'; fi\n\
         if [ -x {path}/bin/python3 ]; then \
         export VIRTUAL_ENV={path} PATH={path}/bin:\"$PATH\"; unset PYTHONHOME; fi\n"
    )
}

/// Quotes a word for the shell.
fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands reach `eval` unchanged.
    #[test]
    fn script_quotes_commands() {
        let text = build_script(&["echo 'a'".into()], None);
        assert_eq!(text, "eval 'echo '\\''a'\\'''\ncase $? in 0) ;; *) exit $? ;; esac\n");
    }
}
