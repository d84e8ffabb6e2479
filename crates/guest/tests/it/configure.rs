//! What the engine tells a guest, and what of it is found in files.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use tarn_link::{Answer, Configuration, Purpose};

use crate::lab::{Lab, SOMEBODY};

/// Keys made for these tests only.
pub(crate) fn key_pair() -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let arguments = ["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path.to_str().unwrap()];
    assert!(std::process::Command::new("ssh-keygen").args(arguments).status().unwrap().success());
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    (read(&path), read(&path.with_extension("pub")).trim().to_owned())
}

fn configuration(peer: &(String, String)) -> Configuration {
    Configuration {
        public_keys: vec!["ssh-ed25519 AAAAC3Nz me".into()],
        hosts: vec![("c-1-0".into(), "10.1.0.2".into()), ("c-1-1".into(), "10.1.0.3".into())],
        host_key: String::new(),
        peer_key: peer.0.clone(),
        peer_public_key: peer.1.clone(),
        known_hosts: vec!["c-1-0,10.1.0.2 ssh-ed25519 AAAA".into()],
        volumes: Vec::new(),
    }
}

async fn configure(lab: &Lab, configuration: Configuration) -> tarn_link::Result<Answer> {
    lab.ask(Purpose::Configure(Box::new(configuration))).await.map(|(answer, _)| answer)
}

#[tokio::test]
async fn files_are_written_and_what_the_user_wrote_stays() {
    let lab = Lab::of_somebody().unwrap_or_else(Lab::new);
    lab.root.write("etc/hosts", "10.9.9.9 mine\n");
    let peer = key_pair();
    assert_eq!(configure(&lab, configuration(&peer)).await.unwrap(), Answer::Ready);
    let hosts = lab.root.read("etc/hosts");
    for line in ["127.0.0.1\tlocalhost", "10.9.9.9 mine", "10.1.0.2\tc-1-0", "10.1.0.3\tc-1-1"] {
        assert!(hosts.lines().any(|found| found == line), "{line} is not in {hosts}");
    }
    assert!(lab.root.read("etc/ssh/ssh_known_hosts").contains("c-1-0,10.1.0.2 ssh-ed25519 AAAA\n"));
    assert_eq!(lab.root.read("home/tester/.ssh/id_ed25519"), peer.0);
    assert_eq!(lab.root.read("home/tester/.ssh/id_ed25519.pub"), format!("{}\n", peer.1));
    let key = lab.root.home().join(".ssh/id_ed25519").metadata().unwrap();
    assert_eq!((key.mode() & 0o777, key.uid()), (0o600, lab.root.home().metadata().unwrap().uid()));
    let state = lab.root.path().join("var/lib/tarn/guest.json").metadata().unwrap();
    assert_eq!(state.mode() & 0o777, 0o600);
    // A second one replaces the first and nothing else.
    let other = key_pair();
    let second = Configuration { hosts: vec![("c-1-0".into(), "10.1.0.7".into())], ..configuration(&other) };
    configure(&lab, second).await.unwrap();
    let hosts = lab.root.read("etc/hosts");
    assert!(
        hosts.contains("10.9.9.9 mine") && hosts.contains("10.1.0.7\tc-1-0") && !hosts.contains("c-1-1"),
        "{hosts}"
    );
    assert_eq!(lab.root.read("home/tester/.ssh/id_ed25519"), other.0);
}

#[tokio::test]
async fn a_key_of_the_users_own_is_left_alone() {
    let lab = Lab::new();
    std::fs::create_dir(lab.root.home().join(".ssh")).unwrap();
    lab.root.write("home/tester/.ssh/id_ed25519", "my own key");
    configure(&lab, configuration(&key_pair())).await.unwrap();
    assert_eq!(lab.root.read("home/tester/.ssh/id_ed25519"), "my own key");
    assert!(!lab.root.home().join(".ssh/id_ed25519.pub").exists());
}

#[tokio::test]
async fn the_user_cannot_make_root_write_elsewhere() {
    let Some(lab) = Lab::of_somebody() else { return };
    let elsewhere = lab.root.path().join("etc/elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, lab.root.home().join(".ssh")).unwrap();
    assert!(configure(&lab, configuration(&key_pair())).await.is_err());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    std::fs::remove_file(lab.root.home().join(".ssh")).unwrap();
    let ssh = lab.root.home().join(".ssh");
    std::fs::create_dir(&ssh).unwrap();
    std::os::unix::fs::chown(&ssh, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    for name in ["id_ed25519", ".id_ed25519.tarn"] {
        std::os::unix::fs::symlink(elsewhere.join("file"), ssh.join(name)).unwrap();
    }
    configure(&lab, configuration(&key_pair())).await.unwrap();
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[tokio::test]
async fn a_bad_configuration_changes_nothing() {
    let lab = Lab::new();
    let good = configuration(&key_pair());
    configure(&lab, good.clone()).await.unwrap();
    let before = (lab.root.read("etc/hosts"), lab.root.read("var/lib/tarn/guest.json"));
    let bad = [
        Configuration { hosts: vec![("a\nb".into(), "10.0.0.1".into())], ..good.clone() },
        Configuration { hosts: vec![("a".into(), "no address".into())], ..good.clone() },
        Configuration { public_keys: vec!["one\ntwo".into()], ..good.clone() },
        Configuration { known_hosts: vec!["one\ntwo".into()], ..good.clone() },
        Configuration { host_key: "nonsense".into(), ..good.clone() },
        Configuration { volumes: vec![("../evil".into(), "/mnt/s-0123456789ab".into())], ..good.clone() },
        Configuration { volumes: vec![("data".into(), "/etc".into())], ..good.clone() },
        Configuration { peer_key: "nonsense".into(), ..good },
    ];
    for configuration in bad {
        configure(&lab, configuration).await.unwrap_err();
        assert_eq!((lab.root.read("etc/hosts"), lab.root.read("var/lib/tarn/guest.json")), before);
    }
}

#[tokio::test]
async fn a_guest_remembers_and_survives_a_broken_memory() {
    let lab = Lab::new();
    configure(&lab, configuration(&key_pair())).await.unwrap();
    let state = lab.root.read("var/lib/tarn/guest.json");
    let Lab { root, .. } = lab;
    let lab = Lab::of(root);
    assert_eq!(lab.root.read("var/lib/tarn/guest.json"), state, "nothing was made anew");
    lab.root.write("var/lib/tarn/guest.json", "{ nonsense");
    let lab = Lab::of(lab.root);
    assert!(lab.run("true").await.text().is_empty());
    let permissions = lab.root.path().join("var/lib/tarn").metadata().unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o700);
}
