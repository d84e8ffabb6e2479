//! `tarn job init`: a file to begin with. One that is there is never overwritten.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, text};
use crate::paths;

/// What all such files end with.
const ENDING: &str = ".tp.toml";

/// How many names are tried.
const MAX_NAMES: u32 = 1000;

pub(super) async fn run(ctx: &Context<'_>, name: Option<&str>) -> Result<()> {
    let body = ctx.engine.get("/job/init", &[]).await?;
    if ctx.options.json {
        return output::print_json(&body);
    }
    let template = text(&body, "empty_tp_config");
    let name = match name {
        Some(name) => {
            let name = format!("{}{ENDING}", name.strip_suffix(ENDING).unwrap_or(name));
            write(&paths::expand(ctx.surroundings, name.as_ref()), template)?;
            name
        }
        None => write_free(&ctx.surroundings.directory, template)?,
    };
    output::print(&format!("{name} is written. Change it as you like, and run it with: tarn job push {name} CLUSTER"))
}

/// Writes it under the first name that is free, as the stock client does; the name.
fn write_free(directory: &Path, template: &str) -> Result<String> {
    for number in 0..MAX_NAMES {
        let name = if number == 0 { format!("job{ENDING}") } else { format!("job{number}{ENDING}") };
        let path = directory.join(&name);
        match create(&path, template) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            written => return written.map(|()| name).map_err(|e| failed(&path, &e)),
        }
    }
    Err(Failure::new("there are too many such files here; give a name"))
}

fn write(path: &Path, template: &str) -> Result<()> {
    create(path, template).map_err(|e| failed(path, &e))
}

fn create(path: &Path, template: &str) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path)?.write_all(template.as_bytes())
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::new(format!("{} is there already; give another name", path.display())),
        _ => Failure::doing(format_args!("{} cannot be written", path.display()), error),
    }
}
