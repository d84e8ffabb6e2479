//! Starts the program of a session.

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

use super::{command_line, environment, terminal};
use crate::link_service::Guest;
use crate::process::ChildExit;
use crate::process::Pipe;
use crate::process::spawn::{run_as_user_at_home, run_as_user_in};
use crate::users::Account;
use crate::users::images;

/// The maximum length of `/etc/motd` that is shown.
const MAX_GREETING: u64 = 64 << 10;

/// The message for a login to an image without a shell.
const NO_SHELL: &str = "this image has no shell to log in to; run its programs directly: \
                        ssh HOST /path/to/program ARGUMENTS";

/// The maximum length of a command line: the kernel accepts no longer single argument.
const MAX_COMMAND: usize = 127 << 10;

/// A running program.
pub(super) struct Running {
    pub(super) pid: Pid,
    pub(super) ending: ChildExit,
    pub(super) input: Arc<Pipe>,
    pub(super) output: Arc<Pipe>,
    /// The error stream; a terminal has none.
    pub(super) errors: Option<Pipe>,
    pub(super) terminal: Option<Arc<Pipe>>,
    /// The greeting before its output.
    pub(super) greeting: Option<Vec<u8>>,
}

/// Starts the program of a session as the user.
pub(super) fn start_program(
    guest: &Guest,
    account: &Account,
    session: &Session,
    agent: Option<&Path>,
) -> io::Result<Running> {
    let start_directory = start_directory(guest, account, &session.program);
    match &session.pty {
        Some(pty) if session.program != Program::Sftp => {
            let terminal = terminal::open_terminal(account, guest.accounts()?.find_gid("tty"), pty)?;
            let name = Some(terminal.path.as_str());
            let mut command = build_command(guest, account, session, (name, agent), &start_directory)?;
            command.stdin(terminal.program_side.try_clone()?);
            command.stdout(terminal.program_side.try_clone()?);
            command.stderr(terminal.program_side);
            run_as_user(&mut command, account, true, &start_directory)?;
            let ours = Arc::new(Pipe::new(terminal.guest_side)?);
            let (pid, ending) = guest.children.spawn(&mut command)?;
            let is_shell = session.program == Program::Shell;
            let greeting = is_shell.then(|| read_greeting(&guest.settings.root, account)).flatten();
            let (input, output) = (ours.clone(), ours.clone());
            Ok(Running { pid, ending, input, output, errors: None, terminal: Some(ours), greeting })
        }
        _ => {
            let mut command = build_command(guest, account, session, (None, agent), &start_directory)?;
            let (their_input, input) = close_on_exec_pipe()?;
            let (output, their_output) = close_on_exec_pipe()?;
            let (errors, their_errors) = close_on_exec_pipe()?;
            command.stdin(their_input).stdout(their_output).stderr(their_errors);
            run_as_user(&mut command, account, false, &start_directory)?;
            let (input, output, errors) = (Pipe::new(input)?, Pipe::new(output)?, Pipe::new(errors)?);
            let (pid, ending) = guest.children.spawn(&mut command)?;
            let (input, output) = (Arc::new(input), Arc::new(output));
            Ok(Running { pid, ending, input, output, errors: Some(errors), terminal: None, greeting: None })
        }
    }
}

fn close_on_exec_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Returns the directory to start in if it is not the home directory. SFTP always starts at home.
fn start_directory(guest: &Guest, account: &Account, program: &Program) -> Option<PathBuf> {
    let image = guest.settings.image.as_ref().filter(|_| *program != Program::Sftp)?;
    images::image_directory(&guest.settings.root, image).filter(|directory| *directory != account.home)
}

fn run_as_user(
    command: &mut Command,
    account: &Account,
    terminal: bool,
    start_directory: &Option<PathBuf>,
) -> io::Result<()> {
    match start_directory {
        Some(directory) => run_as_user_in(command, account, terminal, directory),
        None => run_as_user_at_home(command, account, terminal),
    }
}

/// Builds the command with its environment.
fn build_command(
    guest: &Guest,
    account: &Account,
    session: &Session,
    (terminal, agent): (Option<&str>, Option<&Path>),
    start_directory: &Option<PathBuf>,
) -> io::Result<Command> {
    let (root, image) = (&guest.settings.root, guest.settings.image.as_ref());
    let variables = environment::build_environment(root, account, image, session, terminal, agent);
    let has_shell = image.is_none() || images::find_shell(root, Some(&account.shell)).is_some();
    let mut command = Command::new(&account.shell);
    match &session.program {
        Program::Shell if !has_shell => command = refusal_command(guest, NO_SHELL),
        // A login shell would replace the image's path.
        Program::Shell if image.is_some() => {}
        Program::Shell => {
            let name = account.shell.file_name().unwrap_or(account.shell.as_os_str());
            let mut login = std::ffi::OsString::from("-");
            login.push(name);
            command.arg0(login);
        }
        Program::Exec(line) => {
            if line.len() > MAX_COMMAND || line.contains(&0) {
                return Err(io::Error::other("the command line is too long or contains a zero byte"));
            }
            if has_shell {
                command.arg("-c").arg(std::ffi::OsString::from_vec(line.clone()));
            } else {
                let path = variables.get(std::ffi::OsStr::new("PATH"));
                command = command_without_shell(guest, line, path, start_directory.as_deref().unwrap_or(&account.home));
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

/// Builds the command for a command line without a shell to parse it.
fn command_without_shell(guest: &Guest, line: &[u8], path: Option<&std::ffi::OsString>, directory: &Path) -> Command {
    let Some(words) = command_line::split_command_line(line) else {
        return refusal_command(guest, "this image has no shell, and the command has an unclosed quote");
    };
    let Some((name, arguments)) = words.split_first() else { return refusal_command(guest, NO_SHELL) };
    match command_line::find_program(name, path, directory) {
        Some(program) => {
            let mut command = Command::new(program);
            command.arg0(name).args(arguments);
            command
        }
        None => {
            let name = name.to_string_lossy();
            let name = tarn_base::plain(&name, 200);
            refusal_command(guest, &format!("{name}: no such program, and this image has no shell"))
        }
    }
}

/// Builds a command that prints why there is no program, as a shell would.
fn refusal_command(guest: &Guest, words: &str) -> Command {
    let mut command = Command::new(&guest.settings.helper);
    command.args(["no-program", words]);
    command
}

/// Reads the message of the day, unless the user has disabled it, with the line ends of a terminal.
fn read_greeting(root: &Path, account: &Account) -> Option<Vec<u8>> {
    if account.home.join(".hushlogin").symlink_metadata().is_ok() {
        return None;
    }
    let text = crate::filesystem::read_bounded(&root.join("etc/motd"), MAX_GREETING).ok()?;
    let mut shown = Vec::with_capacity(text.len() + 64);
    for byte in &text {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    Some(shown)
}
