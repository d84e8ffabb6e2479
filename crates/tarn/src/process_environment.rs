//! The environment of this process, as the client and single commands need it.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use tarn_cli::Environment;

/// Reads the environment.
pub(crate) fn read_environment() -> Environment {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    let configuration = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration = configuration.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let width =
        || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col).filter(|width| *width > 0);
    Environment {
        engine: variable("TENSORPOOL_ENGINE"),
        key: variable("TENSORPOOL_KEY"),
        profile: variable("TARN_PROFILE"),
        directory: std::env::current_dir().unwrap_or_default(),
        configuration: configuration.map(|directory| directory.join("tarn")),
        home,
        no_color: variable("NO_COLOR").is_some(),
        width: std::io::stdout().is_terminal().then(width).flatten(),
        has_input: std::io::stdin().is_terminal(),
        has_errors: std::io::stderr().is_terminal(),
    }
}

/// Reads a variable that is no option because arguments are visible to other users of the host; `None` if it is empty.
#[allow(clippy::disallowed_methods, reason = "secrets of commands that run once are read here")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The name under which the program was called, so that a link named `tp` completes the commands of `tp`.
pub(crate) fn program_name() -> String {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    name.unwrap_or("tarn").to_owned()
}
