//! A specification as it is written in a file. Unknown fields are accepted: they may be for other programs.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Edits, Unusable, check};

/// The supported versions of CDI.
const VERSIONS: [&str; 9] = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "0.8.1", "1.0.0", "1.1.0"];

/// The maximum number of devices in a specification.
const MAX_DEVICES: usize = 4096;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Specification {
    cdi_version: String,
    kind: String,
    #[serde(default)]
    pub(super) devices: Vec<Device>,
    #[serde(default)]
    pub(super) container_edits: ContainerEdits,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) name: String,
    #[serde(default)]
    pub(super) container_edits: ContainerEdits,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerEdits {
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<DeviceNode>,
    pub(super) mounts: Vec<MountPoint>,
    pub(super) hooks: Vec<Hook>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeviceNode {
    pub(super) path: String,
    pub(super) host_path: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) major: Option<i64>,
    pub(super) minor: Option<i64>,
    pub(super) file_mode: Option<u32>,
    pub(super) permissions: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MountPoint {
    pub(super) host_path: String,
    pub(super) container_path: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hook {
    pub(super) args: Vec<String>,
}

impl Specification {
    /// Checks the version and the form.
    pub(super) fn validate(&self) -> Result<(), Unusable> {
        if !VERSIONS.contains(&self.cdi_version.as_str()) {
            let message = format!("its cdiVersion {:?} is not supported", self.cdi_version);
            return Err(Unusable::Wrong(message));
        }
        let plain = |text: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !text.is_empty() && text.len() <= 253 && text.chars().all(fits)
        };
        if !self.kind.split_once('/').is_some_and(|(vendor, class)| plain(vendor) && plain(class)) {
            return Err(Unusable::Wrong(format!("its kind {:?} is not a vendor, a slash and a class", self.kind)));
        }
        if self.devices.len() > MAX_DEVICES {
            return Err(Unusable::Wrong(format!("it has more than {MAX_DEVICES} devices")));
        }
        let is_name = |name: &str| plain(&name.replace(':', "-"));
        match self.devices.iter().find(|device| !is_name(&device.name)) {
            Some(device) => Err(Unusable::Wrong(format!("{:?} is not a name of a device", device.name))),
            None => Ok(()),
        }
    }

    pub(super) fn is_of_class(&self, class: &str) -> bool {
        self.kind.split_once('/').is_some_and(|(_, own)| own == class)
    }
}

/// Adds the effect of a hook, if it is a known one.
///
/// Hooks are programs of the host that a container runtime would run as root around an instance whose contents a tenant
/// chose, so they are not run. The known hooks of NVIDIA do little, which is done here in another way: links to
/// libraries are created, and their directories are added to the loader's path.
pub(super) fn add_hook(edits: &mut Edits, hook: &Hook) -> Result<(), Unusable> {
    let mut words = hook.args.iter().map(String::as_str);
    let known = words.by_ref().find(|word| ["create-symlinks", "update-ldcache"].contains(word));
    match known {
        Some("create-symlinks") => {
            for link in option_values("--link", words) {
                let Some((target, path)) = link.split_once("::") else { continue };
                let path = check::path_inside(path)?;
                if target.is_empty() || target.len() > check::MAX_PATH || target.contains('\0') {
                    return Err(Unusable::Wrong(format!("the link {link:?} has no sane target")));
                }
                edits.links.push((target.to_owned(), path));
            }
        }
        Some(_) => {
            for folder in option_values("--folder", words) {
                let folder: PathBuf = check::path_inside(folder)?;
                if !edits.libraries.contains(&folder) {
                    edits.libraries.push(folder);
                }
            }
        }
        None => tracing::debug!(?hook, "an unknown hook of a CDI specification is not run"),
    }
    Ok(())
}

/// Returns the values of a repeatable option, as `--name value` or `--name=value`.
fn option_values<'a>(name: &'static str, words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut found, mut is_next) = (Vec::new(), false);
    for word in words {
        match word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            Some(value) => found.push(value),
            None if is_next => found.push(word),
            None => {}
        }
        is_next = word == name;
    }
    found
}
