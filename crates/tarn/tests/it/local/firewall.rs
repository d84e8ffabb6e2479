//! The firewall of an installation while its instances run.

use std::process::Command;

use tarn_driver::Driver;

use crate::local::test_host::{traces, with_test_host};

/// Runs `nft` on a table of the installation, the only part of the host's firewall that the test touches.
fn nft(arguments: &str, installation: &str) -> String {
    let output = Command::new("nft").args(arguments.split(' ')).arg(format!("tarn_{installation}")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The firewall is kept while there are instances, and no longer.
#[test]
fn firewall_is_kept_while_instances_exist() {
    with_test_host(async |host| {
        let installation = host.driver.installation().to_owned();
        host.driver.restore_isolation().await.unwrap();
        assert_eq!(traces(&installation), Vec::<String>::new(), "without instances there is nothing to keep");
        let spec = host.spec();
        host.start(&spec).await;
        let families = ["inet", "bridge"];
        let listed = || families.map(|family| nft(&format!("list table {family}"), &installation)).concat();
        let loaded = listed();
        for accident in ["flush table", "delete table"] {
            for family in families {
                nft(&format!("{accident} {family}"), &installation);
                assert!(listed() != loaded, "{accident} {family}");
                host.driver.restore_isolation().await.unwrap();
                assert!(listed() == loaded, "{accident} {family}");
            }
        }
        host.driver.remove_instance(&spec.id).await.unwrap();
        host.driver.restore_isolation().await.unwrap();
        assert_eq!(traces(&installation), Vec::<String>::new());
    });
}
