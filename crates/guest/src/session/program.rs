//! Starting the program of a session.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use tarn_link::{Program, Session};

use super::{environment, terminal, words};
use crate::accounts::Account;
use crate::children::Ending;
use crate::images;
use crate::pipe::Pipe;
use crate::service::Guest;
use crate::spawn::{run_as, run_as_in};

/// The longest `/etc/motd` that is shown.
const MAX_GREETING: u64 = 64 << 10;

/// What is said to who wants to log in where there is no shell.
const NO_SHELL: &str = "this image has no shell, so there is nothing to log in to; its programs can be run: \
                        ssh HOST /path/to/program ARGUMENTS";

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
    let begins = begins(guest, account, &session.program);
    match &session.pty {
        Some(pty) if session.program != Program::Sftp => {
            let terminal = terminal::open(account, guest.accounts()?.group_named("tty"), pty)?;
            let name = Some(terminal.name.as_str());
            let mut command = command(guest, account, session, (name, agent), &begins)?;
            command.stdin(terminal.theirs.try_clone()?);
            command.stdout(terminal.theirs.try_clone()?);
            command.stderr(terminal.theirs);
            run(&mut command, account, true, &begins)?;
            let ours = Arc::new(Pipe::new(terminal.ours)?);
            let (pid, ending) = guest.children.spawn(&mut command)?;
            let is_shell = session.program == Program::Shell;
            let greeting = is_shell.then(|| greeting(&guest.settings.root, account)).flatten();
            let (input, output) = (ours.clone(), ours.clone());
            Ok(Running { pid, ending, input, output, errors: None, terminal: Some(ours), greeting })
        }
        _ => {
            let mut command = command(guest, account, session, (None, agent), &begins)?;
            let (their_input, input) = pipe()?;
            let (output, their_output) = pipe()?;
            let (errors, their_errors) = pipe()?;
            command.stdin(their_input).stdout(their_output).stderr(their_errors);
            run(&mut command, account, false, &begins)?;
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

/// Where the program begins, if not in the home: files are looked for at home, whatever an image says.
fn begins(guest: &Guest, account: &Account, program: &Program) -> Option<PathBuf> {
    let image = guest.settings.image.as_ref().filter(|_| *program != Program::Sftp)?;
    images::directory(&guest.settings.root, image).filter(|directory| *directory != account.home)
}

fn run(command: &mut Command, account: &Account, terminal: bool, begins: &Option<PathBuf>) -> io::Result<()> {
    match begins {
        Some(directory) => run_as_in(command, account, terminal, directory),
        None => run_as(command, account, terminal),
    }
}

/// The program with its environment.
fn command(
    guest: &Guest,
    account: &Account,
    session: &Session,
    (terminal, agent): (Option<&str>, Option<&Path>),
    begins: &Option<PathBuf>,
) -> io::Result<Command> {
    let (root, image) = (&guest.settings.root, guest.settings.image.as_ref());
    let variables = environment::build(root, account, image, session, terminal, agent);
    let has_shell = image.is_none() || images::shell(root, Some(&account.shell)).is_some();
    let mut command = Command::new(&account.shell);
    match &session.program {
        Program::Shell if !has_shell => command = refusal(guest, NO_SHELL),
        // A login shell would make its own path in place of the image's.
        Program::Shell if image.is_some() => {}
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
            if has_shell {
                command.arg("-c").arg(std::ffi::OsString::from_vec(line.clone()));
            } else {
                let path = variables.get(std::ffi::OsStr::new("PATH"));
                command = without_shell(guest, line, path, begins.as_deref().unwrap_or(&account.home));
            }
        }
        Program::Sftp => {
            command = Command::new(&guest.settings.helper);
            command.arg("sftp-server");
        }
    }
    command.stdin(Stdio::null()).env_clear().envs(variables);
    Ok(command)
}

/// The program that a command line names, where there is no shell to understand it.
fn without_shell(guest: &Guest, line: &[u8], path: Option<&std::ffi::OsString>, directory: &Path) -> Command {
    let Some(words) = words::split(line) else {
        return refusal(guest, "this image has no shell, and in the command a quote is not closed");
    };
    let Some((name, arguments)) = words.split_first() else { return refusal(guest, NO_SHELL) };
    match words::find(name, path, directory) {
        Some(program) => {
            let mut command = Command::new(program);
            command.arg0(name).args(arguments);
            command
        }
        None => {
            let name: String = name.to_string_lossy().escape_default().take(200).collect();
            refusal(guest, &format!("{name}: there is no such program, and this image has no shell"))
        }
    }
}

/// A program that says why there is none, as a shell would.
fn refusal(guest: &Guest, words: &str) -> Command {
    let mut command = Command::new(&guest.settings.helper);
    command.args(["no-program", words]);
    command
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
