//! What the tests see of a volume: its file, and what is in it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_driver::{Driver, VolumeSpec};
use tarn_model::ids::VolumeId;

use crate::local::machine::{Machine, PATIENCE, loops, on_a_machine};

/// Runs a test on a machine that can have volumes.
pub(super) fn with_volumes(test: impl AsyncFnOnce(&mut Machine)) {
    on_a_machine(async |machine| match machine.driver.capabilities().volumes {
        true => test(machine).await,
        false => eprintln!("skipped: volumes need mkfs.xfs, and a kernel with XFS and loop devices"),
    });
}

impl Machine {
    pub(super) fn volume(&self, size_bytes: u64) -> VolumeSpec {
        VolumeSpec { id: VolumeId::fresh(&self.ids), size_bytes }
    }

    pub(super) fn pool(&self) -> PathBuf {
        self.data.path().join("volumes")
    }

    pub(super) fn file(&self, spec: &VolumeSpec) -> PathBuf {
        self.pool().join(spec.id.as_str()).join("data.xfs")
    }

    /// The number of the only loop device that has the file of a volume of this machine. The kernel takes a moment to take one away
    /// that was there before; a second one that somebody uses does not go.
    pub(super) async fn device(&self) -> String {
        let one = async {
            loop {
                match &device_numbers(&self.data.path().join("volumes"))[..] {
                    [device] => return device.clone(),
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, one).await.expect("it is in use and has one device")
    }

    /// Waits until no loop device has the file of a volume of this machine: the kernel takes a moment for it.
    pub(super) async fn no_loops(&self) {
        let gone = async {
            while !loops(&self.data.path().join("volumes")).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("devices go with their last user");
    }
}

/// The numbers of the loop devices that have files below a directory, as the list of mounts shows them.
fn device_numbers(below: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").unwrap().flatten().map(|device| device.path());
    let own = devices.filter(|device| {
        fs::read_to_string(device.join("loop/backing_file"))
            .is_ok_and(|file| Path::new(file.trim_end()).starts_with(below))
    });
    own.map(|device| fs::read_to_string(device.join("dev")).unwrap().trim_end().to_owned()).collect()
}

/// What the first sector of an XFS says.
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
