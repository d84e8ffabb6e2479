//! Unmounts that take long, because much is not on disk yet.

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use tarn_driver::Driver;
use tarn_driver::local::{ImageSettings, LocalDriver, LocalSettings, Protections};
use tarn_model::capacity::Inventory;

use super::{create_volume, start_with_volumes};
use crate::local::test_host::{TIMEOUT, entry_names, open, with_test_host};

/// A helper that delays unmounts until it is released, and shows that it waits.
const HELPER: &str = r#"
read -r order
case "$order" in
    '{"unmount"'*) : > "$1/waits/$$"; until [ -e "$1/go" ]; do sleep 0.02; done ;;
esac
shift
(printf '%s\n' "$order"; exec cat) | "$@"
"#;

/// The guest that the program under test embeds.
const GUEST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tarn-guest.zst"));

/// How many helpers an engine runs at once.
const HELPERS: usize = 4;

/// Slow unmounts do not delay the start of instances.
#[test]
fn unmounts_delay_no_starts() {
    with_test_host(async |host| {
        let gate = tempfile::tempdir().unwrap();
        fs::create_dir(gate.path().join("waits")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        host.driver = open(elsewhere.path()).await.unwrap();
        host.driver = open_slow(host.data.path(), gate.path()).await;
        let volume = create_volume(host).await;
        let mut specs = Vec::new();
        for _ in 0..HELPERS {
            specs.push(start_with_volumes(host, &[&volume]).await);
        }
        let host = &*host;
        let unmounts = join_all(specs.iter().map(|spec| host.driver.remove_mount(&volume.id, &spec.id)));
        let other = async {
            let all_wait = async {
                while entry_names(&gate.path().join("waits")).len() < HELPERS {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(TIMEOUT, all_wait).await.expect("all unmounts have begun");
            let spec = tokio::time::timeout(TIMEOUT, start_with_volumes(host, &[&volume])).await;
            fs::write(gate.path().join("go"), "").unwrap();
            spec.expect("an instance starts meanwhile")
        };
        let (unmounted, _) = tokio::join!(unmounts, other);
        assert!(unmounted.iter().all(Result::is_ok), "{unmounted:?}");
    });
}

/// Opens a driver with the slow helper.
async fn open_slow(data: &Path, gate: &Path) -> LocalDriver {
    let script = gate.join("helper");
    fs::write(&script, HELPER).unwrap();
    let helper = [env!("CARGO_BIN_EXE_tarn"), "instance-helper"].map(Into::into);
    let settings = LocalSettings {
        disk_bytes: Some(1_000_000_000),
        protections: Protections::default(),
        lxcfs: None,
        data: data.to_owned(),
        pool: data.join("volumes"),
        run: "/run/tarn".into(),
        helper: ["/bin/sh".into(), script.into(), gate.into()].into_iter().chain(helper).collect(),
        guest: GUEST,
        policy: Default::default(),
        images: ImageSettings::default(),
        inventory: Inventory { cpu_milli: 8_000, memory_bytes: 8 << 30, gpus: Vec::new(), storage_bytes: 0 },
        gpus: crate::local::test_host::no_gpus(),
        cdi: Default::default(),
    };
    LocalDriver::open(settings).await.unwrap()
}
