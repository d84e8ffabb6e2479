//! The firewall of an installation while its instances run.

use std::process::Command;

use tarn_driver::Driver;

use crate::local::machine::{on_a_machine, traces};

/// Runs `nft` on a table of the installation, which is all that the test touches of the machine's firewall.
fn nft(words: &str, installation: &str) -> String {
    let output = Command::new("nft").args(words.split(' ')).arg(format!("tarn_{installation}")).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_firewall_is_kept_while_there_are_instances_and_not_longer() {
    on_a_machine(async |machine| {
        let installation = machine.driver.installation().to_owned();
        machine.driver.restore_isolation().await.unwrap();
        assert_eq!(traces(&installation), Vec::<String>::new(), "without instances there is nothing to keep");
        let spec = machine.spec();
        machine.start(&spec).await;
        let families = ["inet", "bridge"];
        let listed = || families.map(|family| nft(&format!("list table {family}"), &installation)).concat();
        let loaded = listed();
        for accident in ["flush table", "delete table"] {
            for family in families {
                nft(&format!("{accident} {family}"), &installation);
                assert!(listed() != loaded, "{accident} {family}");
                machine.driver.restore_isolation().await.unwrap();
                assert!(listed() == loaded, "{accident} {family}");
            }
        }
        machine.driver.remove_instance(&spec.id).await.unwrap();
        machine.driver.restore_isolation().await.unwrap();
        assert_eq!(traces(&installation), Vec::<String>::new());
    });
}
