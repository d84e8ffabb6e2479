//! Starting the program of a session.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use tarn_link::{Program, Session};

use super::{environment, terminal};
use crate::accounts::Account;
use crate::children::Ending;
use crate::pipe::Pipe;
use crate::service::Guest;
use crate::spawn::run_as;

/// The longest `/etc/motd` that is shown.
const MAX_GREETING: u64 = 64 << 10;

/// The longest command line: the kernel takes no longer single argument.
const MAX_COMMAND: usize = 127 << 10;

/// A program that has begun.
pub(super) struct Running {
    pub(super) pid: Pid,
    pub(super) ending: Ending,
    pub(super) input: Arc<Pipe>,
    pub(super) output: Arc<Pipe>,
    /// Its error stream; a terminal has none of its own.
    pub(super) errors: Option<Pipe>,
    /// The terminal, if it has one.
    pub(super) terminal: Option<Arc<Pipe>>,
    /// What is shown before its output.
    pub(super) greeting: Option<Vec<u8>>,
}

/// Starts the program of a session as the user.
pub(super) fn start(guest: &Guest, account: &Account, session: &Session, agent: Option<&Path>) -> io::Result<Running> {
    let mut command = command(guest, account, &session.program)?;
    command.env_clear();
    match &session.pty {
        Some(pty) if session.program != Program::Sftp => {
            let terminal = terminal::open(account, guest.accounts()?.group_named("tty"), pty)?;
            let name = Some(terminal.name.as_str());
            command.envs(environment::build(&guest.settings.root, account, session, name, agent));
            command.stdin(terminal.theirs.try_clone()?);
            command.stdout(terminal.theirs.try_clone()?);
            command.stderr(terminal.theirs);
            run_as(&mut command, account, true)?;
            let ours = Arc::new(Pipe::new(terminal.ours)?);
            let (pid, ending) = guest.children.spawn(&mut command)?;
            let is_shell = session.program == Program::Shell;
            let greeting = is_shell.then(|| greeting(&guest.settings.root, account)).flatten();
            let (input, output) = (ours.clone(), ours.clone());
            Ok(Running { pid, ending, input, output, errors: None, terminal: Some(ours), greeting })
        }
        _ => {
            command.envs(environment::build(&guest.settings.root, account, session, None, agent));
            let (their_input, input) = pipe()?;
            let (output, their_output) = pipe()?;
            let (errors, their_errors) = pipe()?;
            command.stdin(their_input).stdout(their_output).stderr(their_errors);
            run_as(&mut command, account, false)?;
            let (input, output, errors) = (Pipe::new(input)?, Pipe::new(output)?, Pipe::new(errors)?);
            let (pid, ending) = guest.children.spawn(&mut command)?;
            let (input, output) = (Arc::new(input), Arc::new(output));
            Ok(Running { pid, ending, input, output, errors: Some(errors), terminal: None, greeting: None })
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

fn command(guest: &Guest, account: &Account, program: &Program) -> io::Result<Command> {
    let mut command = Command::new(&account.shell);
    match program {
        Program::Shell => {
            let name = account.shell.file_name().unwrap_or(account.shell.as_os_str());
            let mut login = std::ffi::OsString::from("-");
            login.push(name);
            command.arg0(login);
        }
        Program::Exec(line) => {
            if line.len() > MAX_COMMAND || line.contains(&0) {
                return Err(io::Error::other("the command line is too long or has a zero byte in it"));
            }
            command.arg("-c").arg(std::ffi::OsString::from_vec(line.clone()));
        }
        Program::Sftp => {
            command = Command::new(&guest.settings.helper);
            command.arg("sftp-server");
        }
    }
    command.stdin(Stdio::null());
    Ok(command)
}

/// The message of the day, unless the user does not want it, with the line ends of a terminal.
fn greeting(root: &Path, account: &Account) -> Option<Vec<u8>> {
    if account.home.join(".hushlogin").symlink_metadata().is_ok() {
        return None;
    }
    let text = crate::bounded::read(&root.join("etc/motd"), MAX_GREETING).ok()?;
    let mut shown = Vec::with_capacity(text.len() + 64);
    for byte in &text {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    Some(shown)
}
