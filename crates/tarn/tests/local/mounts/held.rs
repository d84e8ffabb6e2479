//! Processes that use a volume which shall be unmounted.

use std::time::Duration;

use tarn_driver::{Driver, Error, Holder};

use super::{made, nothing_is_mounted, place, started, until_it_works};
use crate::machine::on_a_machine;

/// Commands that use a volume, each in another way; the name of the program, and whether it ends when it is asked to.
const USERS: [(&str, &str, bool); 5] = [
    ("cd $at && exec sleep 1000", "sleep", true),
    ("exec tail -f $at/file", "tail", true),
    ("cp /usr/bin/sleep $at/program && exec $at/program 1000", "program", true),
    ("cp /usr/lib/*/libm.so.6 $at/m.so && LD_PRELOAD=$at/m.so exec tee <> /tmp/pipe", "tee", true),
    ("trap \"\" TERM HUP; exec cat 3< $at/file <> /tmp/pipe", "cat", false),
];

#[test]
fn holders_are_named_asked_and_at_last_killed() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[&volume]).await);
        machine.run(&spec.id, "sleep 1001 >/dev/null 2>&1 &").await;
        machine.run(&spec.id, &format!("touch {at}/file; mkfifo /tmp/pipe")).await;
        for (command, program, _) in USERS {
            let command = format!("echo $$ > /tmp/{program}; {command}");
            machine.run(&spec.id, &format!("at={at} setsid sh -c '{command}' </dev/null >/dev/null 2>&1 &")).await;
            until_it_works(machine, &spec.id, &format!("pgrep -x {program}")).await;
        }
        let init = machine.init(&spec.id);
        let refused = machine.driver.remove_mount(&volume.id, &spec.id).await;
        let Err(Error::Permanent(why)) = refused else { panic!("{refused:?}") };
        let holders = machine.driver.holders(&volume.id, &spec.id).await.unwrap();
        for (_, program, _) in USERS {
            let pid = machine.run(&spec.id, &format!("cat /tmp/{program}")).await.trim().parse().unwrap();
            let holder = Holder { pid, program: program.into() };
            assert!(
                holders.contains(&holder) && why.contains(&holder.to_string()),
                "{holder} in {why} and {holders:?}"
            );
        }
        assert_eq!(holders.len(), USERS.len(), "{holders:?}");
        let seen = machine.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id), "what is in use stays");
        machine.run(&spec.id, &format!("test -e {at}/file && pgrep -x tail")).await;

        let killed = machine.driver.end_holders(&volume.id, &spec.id, Duration::from_millis(500)).await.unwrap();
        let stubborn: Vec<_> = USERS.iter().filter(|user| !user.2).map(|user| user.1).collect();
        assert_eq!(killed.iter().map(|holder| holder.program.as_str()).collect::<Vec<_>>(), stubborn);
        assert_eq!(machine.driver.holders(&volume.id, &spec.id).await, Ok(Vec::new()));
        machine.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        machine.run(&spec.id, "pgrep -f 'sleep 1001'").await;
        assert_eq!(machine.init(&spec.id), init, "nobody else was touched");
        nothing_is_mounted(machine);
    });
}

#[test]
fn a_volume_that_nobody_uses_has_no_holders() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let [with, without] = [started(machine, &[&volume]).await, started(machine, &[]).await];
        machine.run(&with.id, &format!("touch {}/file", place(&volume))).await;
        for spec in [&with, &without] {
            assert_eq!(machine.driver.holders(&volume.id, &spec.id).await, Ok(Vec::new()));
            let killed = machine.driver.end_holders(&volume.id, &spec.id, Duration::ZERO).await;
            assert_eq!(killed, Ok(Vec::new()));
        }
        // Whoever uses it elsewhere does not keep it here.
        let command = format!("cd {} && setsid sleep 1000 >/dev/null 2>&1 &", place(&volume));
        machine.driver.ensure_mount(&volume.id, &without.id).await.unwrap();
        machine.run(&without.id, &command).await;
        until_it_works(machine, &without.id, "pgrep -x sleep").await;
        assert_eq!(machine.driver.holders(&volume.id, &with.id).await, Ok(Vec::new()));
        machine.driver.remove_mount(&volume.id, &with.id).await.unwrap();
        assert!(matches!(machine.driver.remove_mount(&volume.id, &without.id).await, Err(Error::Permanent(_))));
    });
}
