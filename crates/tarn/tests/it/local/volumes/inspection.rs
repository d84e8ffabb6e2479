//! What the tests inspect of a volume: its file, and the superblock in it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_driver::{Driver, VolumeSpec};
use tarn_model::ids::VolumeId;

use crate::local::test_host::{TIMEOUT, TestHost, attached_files, with_test_host};

/// Runs a test on a host that supports volumes.
pub(super) fn with_volumes(test: impl AsyncFnOnce(&mut TestHost)) {
    with_test_host(async |host| {
        if host.driver.capabilities().volumes {
            test(host).await
        } else {
            eprintln!("skipped: volumes need mkfs.xfs, and a kernel with XFS and loop devices")
        }
    });
}

impl TestHost {
    pub(super) fn volume(&self, size_bytes: u64) -> VolumeSpec {
        VolumeSpec { id: VolumeId::fresh(&self.ids), size_bytes }
    }

    pub(super) fn pool(&self) -> PathBuf {
        self.data.path().join("volumes")
    }

    pub(super) fn file(&self, spec: &VolumeSpec) -> PathBuf {
        self.pool().join(spec.id.as_str()).join("data.xfs")
    }

    /// The number of the only loop device with the file of a volume of this host. The kernel takes a moment to detach
    /// an earlier one; a second one that is in use would stay.
    pub(super) async fn device(&self) -> String {
        let one = async {
            loop {
                match &device_numbers(&self.data.path().join("volumes"))[..] {
                    [device] => return device.clone(),
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        tokio::time::timeout(TIMEOUT, one).await.expect("it is in use and has one device")
    }

    /// Waits until no loop device has the file of a volume of this host, for which the kernel takes a moment.
    pub(super) async fn wait_until_detached(&self) {
        let gone = async {
            while !attached_files(&self.data.path().join("volumes")).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, gone).await.expect("devices go with their last user");
    }
}

/// The numbers of the loop devices with files below a directory, as the list of mounts shows them.
fn device_numbers(below: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten().map(|device| device.path());
    let own = devices.filter(|device| {
        fs::read_to_string(device.join("loop/backing_file"))
            .is_ok_and(|file| Path::new(file.trim_end()).starts_with(below))
    });
    own.map(|device| fs::read_to_string(device.join("dev")).unwrap().trim_end().to_owned()).collect()
}

/// The fields of an XFS superblock.
pub(super) struct Superblock {
    pub(super) label: String,
    pub(super) uuid: [u8; 16],
    pub(super) size_bytes: u64,
}

impl Superblock {
    pub(super) fn of(file: &Path) -> Self {
        let mut sector = [0; 512];
        File::open(file).unwrap().read_exact(&mut sector).unwrap();
        assert_eq!(&sector[..4], b"XFSB");
        let block = u32::from_be_bytes(sector[4..8].try_into().unwrap());
        let blocks = u64::from_be_bytes(sector[8..16].try_into().unwrap());
        Superblock {
            label: String::from_utf8_lossy(&sector[108..120]).into_owned(),
            uuid: sector[32..48].try_into().unwrap(),
            size_bytes: blocks * u64::from(block),
        }
    }
}
