//! The Container Device Interface (CDI): what a container needs to use a device, as specified by the vendor.
//!
//! The operator generates the specifications with the vendor's tool (`nvidia-ctk cdi generate`). They are read at every
//! start of an instance with GPUs, because a new driver brings new ones. They are trusted as much as the user who may
//! write them, which is checked, and no more: a mistake in one must not expose the host. Start reading at
//! [`Directories::resolve`].

mod check;
mod specification;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use specification::{Device, Specification};

/// The maximum size of a specification, and how many files of a directory are read.
const MAX_FILE: u64 = 4 << 20;
const MAX_FILES: usize = 256;

/// The device class of GPUs, for every vendor.
const CLASS: &str = "gpu";

/// Why a device cannot be used; for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No specification names it.
    #[error("no CDI specification names {0}: run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`")]
    Unnamed(String),
    /// Its specification is invalid until someone corrects it.
    #[error("{0}")]
    Wrong(String),
    /// Something is missing on the host. It may appear later, as devices do when their driver is loaded.
    #[error("{0}")]
    Absent(String),
}

/// The directories of specifications. A later directory takes precedence.
#[derive(Clone, Debug, Default)]
pub struct Directories(pub Vec<PathBuf>);

/// The changes to an instance that let it use devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edits {
    pub env: Vec<(String, String)>,
    /// Character devices.
    pub nodes: Vec<Node>,
    /// Files and directories of the host, mounted read-only.
    pub mounts: Vec<Mount>,
    /// Symbolic links: target and path. An existing file at the path is kept.
    pub links: Vec<(String, PathBuf)>,
    /// Library directories to add to the loader's path, if the instance does not have these libraries anyway.
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
    /// User and group ids inside the instance.
    pub uid: u32,
    pub gid: u32,
    /// `r`, `w` or both.
    pub access: String,
}

/// A file or directory of the host that is mounted in an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Mount {
    pub from: PathBuf,
    pub to: PathBuf,
}

impl Directories {
    /// Resolves what an instance with these GPUs needs. Each GPU is given by its possible names, the preferred one
    /// first. Also returns the GPUs that no specification names.
    pub fn resolve(&self, gpus: &[Vec<String>]) -> Result<(Edits, Vec<String>), Unusable> {
        let (all, complaints) = self.read_all_specifications();
        for (path, why) in complaints {
            tracing::warn!(path = %path.display(), "a CDI specification is not used: {why}");
        }
        collect_edits(&all, gpus)
    }

    /// Returns for each of these GPUs why it cannot be used, if so.
    pub fn check(&self, gpus: &[Vec<String>]) -> Vec<Option<Unusable>> {
        let (all, _) = self.read_all_specifications();
        let check = |names: &Vec<String>| match collect_edits(&all, std::slice::from_ref(names)) {
            Ok((edits, unnamed)) => unnamed.into_iter().next().map(Unusable::Unnamed).or_else(|| edits.absent()),
            Err(why) => Some(why),
        };
        gpus.iter().map(check).collect()
    }

    /// Reads all specifications: every GPU that one names, and the files that cannot be read.
    fn read_all_specifications(&self) -> (BTreeMap<String, NamedDevice>, Vec<(PathBuf, Unusable)>) {
        let (mut all, mut complaints) = (BTreeMap::new(), Vec::new());
        for directory in &self.0 {
            let mut here: BTreeMap<String, NamedDevice> = BTreeMap::new();
            for path in specification_files(directory) {
                let specification = match read_specification(&path) {
                    Ok(specification) => specification,
                    Err(why) => {
                        complaints.push((path, why));
                        continue;
                    }
                };
                let file = std::sync::Arc::new(Opened { path, specification });
                for device in file.specification.devices.iter().filter(|_| file.specification.is_of_class(CLASS)) {
                    let named = match here.remove(&device.name) {
                        None => NamedDevice::Once(file.clone(), device.clone()),
                        Some(other) => NamedDevice::Twice(format!("{}, {}", other.place(), file.path.display())),
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
    /// Returns an error if something to be mounted does not exist on the host.
    pub fn absent(&self) -> Option<Unusable> {
        let mount = self.mounts.iter().find(|mount| !mount.from.exists())?;
        Some(Unusable::Absent(format!("{} is not there", mount.from.display())))
    }
}

/// Collects what an instance with these GPUs needs, and the GPUs that are not named.
fn collect_edits(all: &BTreeMap<String, NamedDevice>, gpus: &[Vec<String>]) -> Result<(Edits, Vec<String>), Unusable> {
    let (mut edits, mut unnamed, mut used) = (Edits::default(), Vec::new(), Vec::new());
    for names in gpus {
        match names.iter().find_map(|name| all.get(name)) {
            None => unnamed.extend(names.first().cloned()),
            Some(NamedDevice::Twice(files)) => {
                let name = names.first().map(String::as_str).unwrap_or_default();
                let message = format!("GPU {name} is in two CDI specifications ({files}); remove one of them");
                return Err(Unusable::Wrong(message));
            }
            Some(NamedDevice::Once(file, device)) => {
                // What all devices of a file have in common is added once.
                if !used.contains(&file.path) {
                    used.push(file.path.clone());
                    check::add_edits(&mut edits, &file.specification.container_edits, &file.path)?;
                }
                check::add_edits(&mut edits, &device.container_edits, &file.path)?;
            }
        }
    }
    Ok((edits, unnamed))
}

struct Opened {
    path: PathBuf,
    specification: Specification,
}

enum NamedDevice {
    Once(std::sync::Arc<Opened>, Device),
    Twice(String),
}

impl NamedDevice {
    fn place(&self) -> String {
        match self {
            NamedDevice::Once(file, _) => file.path.display().to_string(),
            NamedDevice::Twice(files) => files.clone(),
        }
    }
}

fn specification_files(directory: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).take(MAX_FILES).collect();
    files.sort();
    files
}

fn read_specification(path: &Path) -> Result<Specification, Unusable> {
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
    let parsed = if path.extension().is_some_and(|end| end == "json") {
        serde_json::from_str::<Specification>(&text).map_err(|error| error.to_string())
    } else {
        yaml_serde::from_str::<Specification>(&text).map_err(|error| error.to_string())
    };
    let specification = parsed.map_err(Unusable::Wrong)?;
    specification.validate()?;
    Ok(specification)
}

#[cfg(test)]
mod tests;
