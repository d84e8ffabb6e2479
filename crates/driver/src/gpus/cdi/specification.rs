//! A specification as it is written in a file. Unknown fields are accepted: they may be for other programs.

use serde::Deserialize;

use super::Unusable;

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
