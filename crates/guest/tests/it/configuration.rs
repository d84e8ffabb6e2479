//! The configuration of a guest, and the files that it writes.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use tarn_link::{Configuration, Purpose, Reply};

use crate::fixture::{Fixture, OTHER_UID};

/// Creates a key pair.
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

async fn configure(fixture: &Fixture, configuration: Configuration) -> tarn_link::Result<Reply> {
    fixture.ask(Purpose::Configure(Box::new(configuration))).await.map(|(answer, _)| answer)
}

/// Files are written, and the user's content stays.
#[tokio::test]
async fn configuration_keeps_user_content() {
    let fixture = Fixture::as_other_user().unwrap_or_else(Fixture::new);
    fixture.root.write("etc/hosts", "10.9.9.9 mine\n");
    let peer = key_pair();
    assert_eq!(configure(&fixture, configuration(&peer)).await.unwrap(), Reply::Ready);
    let hosts = fixture.root.read("etc/hosts");
    for line in ["127.0.0.1\tlocalhost", "10.9.9.9 mine", "10.1.0.2\tc-1-0", "10.1.0.3\tc-1-1"] {
        assert!(hosts.lines().any(|found| found == line), "{line} is not in {hosts}");
    }
    assert!(fixture.root.read("etc/ssh/ssh_known_hosts").contains("c-1-0,10.1.0.2 ssh-ed25519 AAAA\n"));
    assert_eq!(fixture.root.read("home/tester/.ssh/id_ed25519"), peer.0);
    assert_eq!(fixture.root.read("home/tester/.ssh/id_ed25519.pub"), format!("{}\n", peer.1));
    let key = fixture.root.home().join(".ssh/id_ed25519").metadata().unwrap();
    assert_eq!((key.mode() & 0o777, key.uid()), (0o600, fixture.root.home().metadata().unwrap().uid()));
    let state = fixture.root.path().join("var/lib/tarn/guest.json").metadata().unwrap();
    assert_eq!(state.mode() & 0o777, 0o600);
    // A second configuration replaces the first and nothing else.
    let other = key_pair();
    let second = Configuration { hosts: vec![("c-1-0".into(), "10.1.0.7".into())], ..configuration(&other) };
    configure(&fixture, second).await.unwrap();
    let hosts = fixture.root.read("etc/hosts");
    assert!(
        hosts.contains("10.9.9.9 mine") && hosts.contains("10.1.0.7\tc-1-0") && !hosts.contains("c-1-1"),
        "{hosts}"
    );
    assert_eq!(fixture.root.read("home/tester/.ssh/id_ed25519"), other.0);
}

/// A key of the user is not replaced.
#[tokio::test]
async fn users_key_is_not_replaced() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.root.home().join(".ssh")).unwrap();
    fixture.root.write("home/tester/.ssh/id_ed25519", "my own key");
    configure(&fixture, configuration(&key_pair())).await.unwrap();
    assert_eq!(fixture.root.read("home/tester/.ssh/id_ed25519"), "my own key");
    assert!(!fixture.root.home().join(".ssh/id_ed25519.pub").exists());
}

/// The user cannot make root write elsewhere.
#[tokio::test]
async fn user_cannot_redirect_root_writes() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let elsewhere = fixture.root.path().join("etc/elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, fixture.root.home().join(".ssh")).unwrap();
    assert!(configure(&fixture, configuration(&key_pair())).await.is_err());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    std::fs::remove_file(fixture.root.home().join(".ssh")).unwrap();
    let ssh = fixture.root.home().join(".ssh");
    std::fs::create_dir(&ssh).unwrap();
    std::os::unix::fs::chown(&ssh, Some(OTHER_UID), Some(OTHER_UID)).unwrap();
    for name in ["id_ed25519", ".id_ed25519.tarn"] {
        std::os::unix::fs::symlink(elsewhere.join("file"), ssh.join(name)).unwrap();
    }
    configure(&fixture, configuration(&key_pair())).await.unwrap();
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// An invalid configuration changes nothing.
#[tokio::test]
async fn invalid_configuration_changes_nothing() {
    let fixture = Fixture::new();
    let good = configuration(&key_pair());
    configure(&fixture, good.clone()).await.unwrap();
    let before = (fixture.root.read("etc/hosts"), fixture.root.read("var/lib/tarn/guest.json"));
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
        configure(&fixture, configuration).await.unwrap_err();
        assert_eq!((fixture.root.read("etc/hosts"), fixture.root.read("var/lib/tarn/guest.json")), before);
    }
}

/// A guest restores its state, and starts with a corrupt one.
#[tokio::test]
async fn state_survives_restart_and_corruption() {
    let fixture = Fixture::new();
    configure(&fixture, configuration(&key_pair())).await.unwrap();
    let state = fixture.root.read("var/lib/tarn/guest.json");
    let Fixture { root, .. } = fixture;
    let fixture = Fixture::of(root);
    assert_eq!(fixture.root.read("var/lib/tarn/guest.json"), state, "nothing was made anew");
    fixture.root.write("var/lib/tarn/guest.json", "{ nonsense");
    let fixture = Fixture::of(fixture.root);
    assert!(fixture.run("true").await.text().is_empty());
    let permissions = fixture.root.path().join("var/lib/tarn").metadata().unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o700);
}
