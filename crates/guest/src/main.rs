//! The guest's program: the first process of an instance, and its helpers under other names.
//!
//! It only decides which of them to run, and with what arguments.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tarn_guest::{Children, Guest, Settings, find_session_account, init, jobs, process, sftp, ssh_server, sudo};
use tarn_link::Image;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// The signal for a power failure, SIGPWR.
const POWER: i32 = 30;

/// The maximum number of open descriptors of the guest and its programs, if the hard limit allows it.
const MAX_DESCRIPTORS: u64 = 65_536;

/// The exit code of a shell for a missing program.
const NO_PROGRAM: u8 = 127;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    // The caller of the setuid copy chooses its name and arguments, so it must never be anything but sudo.
    if is_setuid() || Path::new(&name).file_name().is_some_and(|name| name == "sudo") {
        return sudo::run_sudo(&arguments);
    }
    let text: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let result = match (text.as_slice(), text.len() == arguments.len()) {
        (["sudo", ..], _) => return sudo::run_sudo(&arguments[1..]),
        (["sftp-server"], _) => sftp::serve_sftp(),
        (["open-socket", action, path], true) => process::user_sockets::run_socket_helper(action, path),
        (["job-supervisor", directory, root, user, place], true) => {
            jobs::supervisor::run_supervisor(directory, root, user, place, read_image_variable())
        }
        (["no-program", words], true) => {
            eprintln!("tarn: {words}");
            return ExitCode::from(NO_PROGRAM);
        }
        (["collect"], _) => jobs::files::run_collect_helper(),
        (["unpack"], _) => jobs::files::run_unpack_helper(),
        (["remove", name], true) => jobs::removal::run_remove_helper(name),
        (options, true) => run_guest(options),
        _ => Err(std::io::Error::other("the arguments are not valid UTF-8")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tarn-guest: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the caller has fewer rights than this process.
fn is_setuid() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() != geteuid() || getgid() != getegid()
}

/// Reads the settings of the container image, if the instance has one. Unreadable settings count as empty: the user
/// must still be able to log in.
fn read_image_variable() -> Option<Image> {
    let text = std::env::var_os(Image::VARIABLE)?;
    let image = serde_json::from_slice(text.as_encoded_bytes());
    Some(image.unwrap_or_else(|e| {
        eprintln!("tarn-guest: the settings of the image could not be parsed: {e}");
        Image::default()
    }))
}

/// The command line of the guest.
struct Options {
    control: Option<PathBuf>,
    /// Whether the driver waits for the exit marker.
    has_exit_marker: bool,
    ssh_port: Option<u16>,
    settings: Settings,
}

fn parse_options(arguments: &[&str], is_init: bool) -> std::io::Result<Options> {
    let ssh_port = is_init.then_some(22);
    let settings = Settings { image: read_image_variable(), ..Settings::instance(is_init) };
    let mut options = Options { control: None, has_exit_marker: false, ssh_port, settings };
    for pair in arguments.chunks(2) {
        match pair {
            ["--control", path] => options.control = Some(path.into()),
            ["--ssh-port", port] => options.ssh_port = Some(port.parse().map_err(std::io::Error::other)?),
            ["--root", root] => options.settings.root = root.into(),
            ["--user", user] => options.settings.user = (*user).into(),
            _ => {
                return Err(std::io::Error::other(
                    "usage: [--control PATH] [--ssh-port PORT] [--root PATH] [--user NAME]",
                ));
            }
        }
    }
    Ok(options)
}

fn run_guest(arguments: &[&str]) -> std::io::Result<()> {
    let mut options = parse_options(arguments, rustix::process::getpid().is_init())?;
    let listener = match &options.control {
        Some(path) => {
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            listener
        }
        None => {
            options.has_exit_marker = init::keep_exit_marker();
            init::take_control_socket()?
        }
    };
    raise_descriptor_limit();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve_until_stopped(options, listener))
}

/// Serves until it is told to stop, and then ends all other processes if this is the first process.
async fn serve_until_stopped(options: Options, listener: std::os::unix::net::UnixListener) -> std::io::Result<()> {
    let Options { settings, ssh_port, has_exit_marker, .. } = options;
    let is_init = settings.is_init;
    let mut signals =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::from_raw(POWER))?];
    let (children, collecting) = Children::new(is_init)?;
    tokio::spawn(collecting);
    if is_init {
        prepare_instance(&settings);
    }
    let guest = Guest::new(settings, children)?;
    if let Some(port) = ssh_port {
        tokio::spawn(serve_ssh(guest.clone(), port));
    }
    let [terminate, interrupt, power] = &mut signals;
    tokio::select! {
        () = guest.serve_listener(UnixListener::from_std(listener)?) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = power.recv() => {}
        () = guest.stop_requested() => {}
    }
    if is_init {
        if has_exit_marker {
            init::write_exit_marker();
        }
        guest.announce_shutdown();
        init::end_all_processes().await;
        guest.save_remaining_output();
        rustix::fs::sync();
    }
    Ok(())
}

/// Prepares the instance and only reports failures: the user can still log in and repair it.
fn prepare_instance(settings: &Settings) {
    let Settings { root, user, image, .. } = settings;
    let prepared =
        find_session_account(root, user, image.as_ref()).and_then(|account| init::prepare_instance(root, &account));
    if let Err(e) = prepared {
        eprintln!("tarn-guest: the home directory could not be prepared: {e}");
    }
    let program = Path::new("/proc/self/exe");
    let installed = match image {
        Some(image) => init::install_sudo_in_image(root, program, image),
        None => init::install_sudo(root, program),
    };
    if let Err(e) = installed {
        eprintln!("tarn-guest: sudo could not be installed: {e}");
    }
}

/// Retries because a server of the user may hold the port for a while.
async fn serve_ssh(guest: std::sync::Arc<Guest>, port: u16) {
    loop {
        match ssh_server::listen_on_port(port).await {
            Ok(listener) => return ssh_server::serve_ssh(guest, listener, std::future::pending()).await,
            Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.map_or(MAX_DESCRIPTORS, |maximum| maximum.min(MAX_DESCRIPTORS));
    if now.current.is_some_and(|current| current < wanted) {
        // If this fails, fewer streams are served, and further ones are refused.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum });
    }
}
