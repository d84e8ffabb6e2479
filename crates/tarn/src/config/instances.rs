//! The `[instances]` section: what instances see of the host.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// Where the unit of Debian's package mounts lxcfs.
const USUAL: &str = "/var/lib/lxcfs";

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Instances {
    lxcfs: PathBuf,
}

impl Default for Instances {
    fn default() -> Self {
        Instances { lxcfs: USUAL.into() }
    }
}

impl Instances {
    pub(super) fn check(&self) -> Result<()> {
        let is_plain = self.lxcfs.is_absolute() && self.lxcfs.components().collect::<PathBuf>() == self.lxcfs;
        if self.lxcfs().is_none_or(|_| is_plain) {
            return Ok(());
        }
        Err(Failure("instances.lxcfs must be an absolute path, or empty for the numbers of the whole host".to_owned()))
    }

    /// Where lxcfs is mounted, if it is; `None` if instances are to see the whole host.
    pub(crate) fn lxcfs(&self) -> Option<&Path> {
        Some(self.lxcfs.as_path()).filter(|path| !path.as_os_str().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn lxcfs_is_an_absolute_path_or_empty() {
        let parsed = |text: &str| toml::from_str::<Config>(text).unwrap();
        assert_eq!(parsed("").instances.lxcfs(), Some(super::USUAL.as_ref()));
        let off = parsed("[instances]\nlxcfs = ''");
        assert!(off.check().is_ok() && off.instances.lxcfs().is_none());
        assert!(parsed("[instances]\nlxcfs = '/run/lxcfs'").check().is_ok());
        for wrong in ["lxcfs", "./lxcfs"] {
            assert!(parsed(&format!("[instances]\nlxcfs = '{wrong}'")).check().is_err(), "{wrong}");
        }
    }
}
