//! The guest's program: the first process of an instance, and by other names its helpers.
//!
//! Nothing else is known here than which of them this is, and what they are given.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tarn_guest::{Children, Guest, Settings, inherited, init, jobs, of_sessions, sftp, sockets, ssh_server, sudo};
use tarn_link::Image;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// The signal by which a machine says that its power goes.
const POWER: i32 = 30;

/// The most descriptors the guest and its programs may have open, where the hard limit allows it.
const MAX_DESCRIPTORS: u64 = 65_536;

/// The code with which a shell says that there is no such program.
const NO_PROGRAM: u8 = 127;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    // Whoever runs the copy that becomes root chooses its name and its arguments: it must never be anything but sudo.
    if has_borrowed_rights() || Path::new(&name).file_name().is_some_and(|name| name == "sudo") {
        return sudo::main(&arguments);
    }
    let text: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let result = match (text.as_slice(), text.len() == arguments.len()) {
        (["sudo", ..], _) => return sudo::main(&arguments[1..]),
        (["sftp-server"], _) => sftp::serve(),
        (["open-socket", action, path], true) => sockets::helper(action, path),
        (["job-supervisor", directory, root, user, place], true) => {
            jobs::supervisor::main(directory, root, user, place, image())
        }
        (["no-program", words], true) => {
            eprintln!("tarn: {words}");
            return ExitCode::from(NO_PROGRAM);
        }
        (["collect"], _) => jobs::collect::main(),
        (["unpack"], _) => jobs::unpack::main(),
        (["remove", name], true) => jobs::remove::main(name),
        (options, true) => run(options),
        _ => Err(std::io::Error::other("the arguments are not text")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tarn-guest: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the caller has fewer rights than this process.
fn has_borrowed_rights() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() != geteuid() || getgid() != getegid()
}

/// What the container image says, if the instance is of one. What cannot be understood says nothing: the instance is there to be
/// entered all the same.
fn image() -> Option<Image> {
    let text = std::env::var_os(Image::VARIABLE)?;
    let image = serde_json::from_slice(text.as_encoded_bytes());
    Some(image.unwrap_or_else(|e| {
        eprintln!("tarn-guest: what the image says was not understood: {e}");
        Image::default()
    }))
}

/// What the guest was asked to be.
struct Options {
    control: Option<PathBuf>,
    /// Whether the driver wants to be told of an orderly end.
    has_last_word: bool,
    ssh_port: Option<u16>,
    settings: Settings,
}

fn parse(arguments: &[&str], is_init: bool) -> std::io::Result<Options> {
    let ssh_port = is_init.then_some(22);
    let settings = Settings { image: image(), ..Settings::instance(is_init) };
    let mut options = Options { control: None, has_last_word: false, ssh_port, settings };
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

fn run(arguments: &[&str]) -> std::io::Result<()> {
    let mut options = parse(arguments, rustix::process::getpid().is_init())?;
    let listener = match &options.control {
        Some(path) => {
            let listener = std::os::unix::net::UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            listener
        }
        None => {
            options.has_last_word = inherited::keep_last_word();
            inherited::control_socket()?
        }
    };
    raise_limits();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(options, listener))
}

/// Serves until it is told to stop, and then ends everybody else if this is the first process.
async fn serve(options: Options, listener: std::os::unix::net::UnixListener) -> std::io::Result<()> {
    let Options { settings, ssh_port, has_last_word, .. } = options;
    let is_init = settings.is_init;
    let mut signals =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::from_raw(POWER))?];
    let (children, collecting) = Children::new(is_init)?;
    tokio::spawn(collecting);
    if is_init {
        prepare(&settings);
    }
    let guest = Guest::new(settings, children)?;
    if let Some(port) = ssh_port {
        tokio::spawn(serve_ssh(guest.clone(), port));
    }
    let [terminate, interrupt, power] = &mut signals;
    tokio::select! {
        () = guest.listen(UnixListener::from_std(listener)?) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = power.recv() => {}
        () = guest.stop_requested() => {}
    }
    if is_init {
        if has_last_word {
            inherited::say_last_word();
        }
        guest.prepare_for_the_end();
        init::end_all_processes().await;
        guest.keep_the_rest();
        rustix::fs::sync();
    }
    Ok(())
}

/// An instance that cannot be prepared in full can still be entered and mended, so this only says what went wrong.
fn prepare(settings: &Settings) {
    let Settings { root, user, image, .. } = settings;
    let prepared = of_sessions(root, user, image.as_ref()).and_then(|account| init::prepare(root, &account));
    if let Err(e) = prepared {
        eprintln!("tarn-guest: the home was not prepared: {e}");
    }
    let program = Path::new("/proc/self/exe");
    let installed = match image {
        Some(image) => init::install_sudo_in_image(root, program, image),
        None => init::install_sudo(root, program),
    };
    if let Err(e) = installed {
        eprintln!("tarn-guest: sudo was not installed: {e}");
    }
}

/// The port may be held by a server of the user's for a while.
async fn serve_ssh(guest: std::sync::Arc<Guest>, port: u16) {
    loop {
        match ssh_server::listen(port).await {
            Ok(listener) => return ssh_server::serve(guest, listener, std::future::pending()).await,
            Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
}

fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.map_or(MAX_DESCRIPTORS, |maximum| maximum.min(MAX_DESCRIPTORS));
    if now.current.is_some_and(|current| current < wanted) {
        // Without it there are fewer streams at a time, and they are refused in order.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum });
    }
}
