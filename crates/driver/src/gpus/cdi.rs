//! What the vendor of a device says that a container needs to use it: the Container Device Interface.
//!
//! The operator has the vendor's tool write the specifications (`nvidia-ctk cdi generate`). They are read at every start of an
//! instance with GPUs, because a new driver brings new ones. They are trusted as far as whoever may write them, who is checked,
//! and no further: a mistake in one must not open the host. Start reading at [`Directories::resolve`].

mod check;
mod hooks;
mod specification;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use specification::{Device, Specification};

/// The longest specification, and how many files of a directory are read.
const MAX_FILE: u64 = 4 << 20;
const MAX_FILES: usize = 256;

/// Whatever class of devices GPUs are in, whoever makes them.
const CLASS: &str = "gpu";

/// Why a device cannot be used; for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No specification names it.
    #[error("no CDI specification names {0}: run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`")]
    Unnamed(String),
    /// What is written of it is wrong, and stays so until somebody mends it.
    #[error("{0}")]
    Wrong(String),
    /// Something of the host is not there. It may come, as devices do when their driver is loaded.
    #[error("{0}")]
    Absent(String),
}

/// Where specifications are. What a later directory says of a device is taken before what an earlier one says.
#[derive(Clone, Debug, Default)]
pub struct Directories(pub Vec<PathBuf>);

/// What has to be changed about an instance so that it can use devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edits {
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Character devices.
    pub nodes: Vec<Node>,
    /// Files and directories of the host, which are shown read-only.
    pub mounts: Vec<Mount>,
    /// Symbolic links, as they are to be and where, unless something is there.
    pub links: Vec<(String, PathBuf)>,
    /// Directories with libraries, if the instance does not have these anyway.
    pub libraries: Vec<PathBuf>,
}

/// A character device in an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Node {
    /// Below `/dev`.
    pub path: PathBuf,
    pub major: u32,
    pub minor: u32,
    pub mode: u32,
    /// Its owner, as numbers inside.
    pub uid: u32,
    pub gid: u32,
    /// What may be done with it: `r`, `w` or both.
    pub access: String,
}

/// Something of the host that is shown in an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Mount {
    pub from: PathBuf,
    pub to: PathBuf,
}

impl Directories {
    /// What an instance needs that gets these GPUs, each with the names that it may have, the best first; those that no
    /// specification names are returned, too.
    pub fn resolve(&self, gpus: &[Vec<String>]) -> Result<(Edits, Vec<String>), Unusable> {
        let (all, complaints) = self.read();
        for (path, why) in complaints {
            tracing::warn!(path = %path.display(), "a CDI specification is not used: {why}");
        }
        edits(&all, gpus)
    }

    /// What keeps each of these GPUs from being used, if something does.
    pub fn check(&self, gpus: &[Vec<String>]) -> Vec<Option<Unusable>> {
        let (all, _) = self.read();
        let check = |names: &Vec<String>| match edits(&all, std::slice::from_ref(names)) {
            Ok((edits, unnamed)) => unnamed.into_iter().next().map(Unusable::Unnamed).or_else(|| edits.absent()),
            Err(why) => Some(why),
        };
        gpus.iter().map(check).collect()
    }

    /// Every GPU that a specification names, and which files cannot be read.
    fn read(&self) -> (BTreeMap<String, Named>, Vec<(PathBuf, Unusable)>) {
        let (mut all, mut complaints) = (BTreeMap::new(), Vec::new());
        for directory in &self.0 {
            let mut here: BTreeMap<String, Named> = BTreeMap::new();
            for path in files_in(directory) {
                let specification = match read(&path) {
                    Ok(specification) => specification,
                    Err(why) => {
                        complaints.push((path, why));
                        continue;
                    }
                };
                let file = std::sync::Arc::new(Opened { path, specification });
                for device in file.specification.devices.iter().filter(|_| file.specification.is_of_class(CLASS)) {
                    let named = match here.remove(&device.name) {
                        None => Named::Once(file.clone(), device.clone()),
                        Some(other) => Named::Twice(format!("{}, {}", other.place(), file.path.display())),
                    };
                    here.insert(device.name.clone(), named);
                }
            }
            all.extend(here);
        }
        (all, complaints)
    }
}

impl Edits {
    /// What is to be shown in the instance and is not on the host.
    pub fn absent(&self) -> Option<Unusable> {
        let mount = self.mounts.iter().find(|mount| !mount.from.exists())?;
        Some(Unusable::Absent(format!("{} is not there", mount.from.display())))
    }
}

/// What an instance needs that gets these GPUs, and those that are not named.
fn edits(all: &BTreeMap<String, Named>, gpus: &[Vec<String>]) -> Result<(Edits, Vec<String>), Unusable> {
    let (mut edits, mut unnamed, mut used) = (Edits::default(), Vec::new(), Vec::new());
    for names in gpus {
        match names.iter().find_map(|name| all.get(name)) {
            None => unnamed.extend(names.first().cloned()),
            Some(Named::Twice(files)) => {
                let name = names.first().map(String::as_str).unwrap_or_default();
                let message = format!("GPU {name} is in two CDI specifications ({files}); remove one of them");
                return Err(Unusable::Wrong(message));
            }
            Some(Named::Once(file, device)) => {
                // What all devices of a file have in common is needed once.
                if !used.contains(&file.path) {
                    used.push(file.path.clone());
                    check::add(&mut edits, &file.specification.container_edits, &file.path)?;
                }
                check::add(&mut edits, &device.container_edits, &file.path)?;
            }
        }
    }
    Ok((edits, unnamed))
}

struct Opened {
    path: PathBuf,
    specification: Specification,
}

enum Named {
    Once(std::sync::Arc<Opened>, Device),
    Twice(String),
}

impl Named {
    fn place(&self) -> String {
        match self {
            Named::Once(file, _) => file.path.display().to_string(),
            Named::Twice(files) => files.clone(),
        }
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).take(MAX_FILES).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Result<Specification, Unusable> {
    let failed = |error: std::io::Error| Unusable::Wrong(error.to_string());
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let mine = rustix::process::geteuid().as_raw();
    if !found.is_file() || (found.uid() != 0 && found.uid() != mine) || found.mode() & 0o022 != 0 {
        return Err(Unusable::Wrong("it must be a file that only root may write".into()));
    }
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(Unusable::Wrong(format!("it is longer than {MAX_FILE} bytes")));
    }
    let parsed = match path.extension().is_some_and(|end| end == "json") {
        true => serde_json::from_str::<Specification>(&text).map_err(|error| error.to_string()),
        false => yaml_serde::from_str::<Specification>(&text).map_err(|error| error.to_string()),
    };
    let specification = parsed.map_err(Unusable::Wrong)?;
    specification.check()?;
    Ok(specification)
}

#[cfg(test)]
mod tests;
