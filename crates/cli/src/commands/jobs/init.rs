//! `tarn job init`: writes a template of a job file. An existing file is never overwritten.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::{self, text_field};

/// The suffix of job files.
const ENDING: &str = ".tp.toml";

/// The number of names that are tried.
const MAX_NAMES: u32 = 1000;

pub(super) async fn init_job_file(ctx: &Context<'_>, name: Option<&str>) -> Result<()> {
    let body = ctx.api.get("/job/init", &[]).await?;
    if ctx.options.json {
        return output::print_json(&body);
    }
    let template = text_field(&body, "empty_tp_config");
    let name = match name {
        Some(name) => {
            let name = format!("{}{ENDING}", name.strip_suffix(ENDING).unwrap_or(name));
            write_template(&paths::resolve_path(ctx.environment, name.as_ref()), template)?;
            name
        }
        None => write_under_free_name(&ctx.environment.directory, template)?,
    };
    output::print_text(&format!("Wrote {name}. Edit it, then run it with: tarn job push {name} CLUSTER"))
}

/// Writes the template under the first free name, as the stock client does, and returns the name.
fn write_under_free_name(directory: &Path, template: &str) -> Result<String> {
    for number in 0..MAX_NAMES {
        let name = if number == 0 { format!("job{ENDING}") } else { format!("job{number}{ENDING}") };
        let path = directory.join(&name);
        match create_template(&path, template) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            written => return written.map(|()| name).map_err(|e| template_failure(&path, &e)),
        }
    }
    Err(Failure::new("there are too many job files here; give a name"))
}

fn write_template(path: &Path, template: &str) -> Result<()> {
    create_template(path, template).map_err(|e| template_failure(path, &e))
}

fn create_template(path: &Path, template: &str) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path)?.write_all(template.as_bytes())
}

fn template_failure(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::new(format!("{} already exists; give another name", path.display())),
        _ => Failure::with_cause(format_args!("cannot write {}", path.display()), error),
    }
}
