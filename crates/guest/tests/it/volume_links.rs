//! The links to volumes in the home directory, and files of the user in their place.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use tarn_link::{Configuration, Purpose, Reply};

use crate::fixture::{Fixture, OTHER_UID, Root, is_root};

const ONE: &str = "/mnt/s-000000000001";
const TWO: &str = "/mnt/s-000000000002";

async fn configure(fixture: &Fixture, volumes: &[(&str, &str)]) {
    let volumes = volumes.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect();
    let configuration = Configuration { volumes, ..Configuration::default() };
    let (answer, _) = fixture.ask(Purpose::Configure(Box::new(configuration))).await.unwrap();
    assert_eq!(answer, Reply::Ready);
}

fn leads_to(fixture: &Fixture, name: &str) -> Option<PathBuf> {
    std::fs::read_link(fixture.root.home().join(name)).ok()
}

fn names(fixture: &Fixture) -> Vec<String> {
    let entries = std::fs::read_dir(fixture.root.home()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Volume links are created, renamed and removed.
#[tokio::test]
async fn links_are_created_renamed_and_removed() {
    let fixture = Fixture::as_other_user().unwrap_or_else(Fixture::new);
    configure(&fixture, &[("data", ONE)]).await;
    assert_eq!(leads_to(&fixture, "data"), Some(ONE.into()));
    let owner = std::fs::symlink_metadata(fixture.root.home().join("data")).unwrap().uid();
    assert_eq!(owner, fixture.root.home().metadata().unwrap().uid(), "it is the user's own");
    configure(&fixture, &[("data", ONE)]).await;
    configure(&fixture, &[("more", ONE)]).await;
    assert_eq!((names(&fixture), leads_to(&fixture, "more")), (vec!["more".to_owned()], Some(ONE.into())));
    // Another volume of the same name replaces the first.
    configure(&fixture, &[("more", TWO)]).await;
    assert_eq!(leads_to(&fixture, "more"), Some(TWO.into()));
    configure(&fixture, &[]).await;
    assert_eq!(names(&fixture), Vec::<String>::new());
}

/// A guest knows its links after a restart.
#[tokio::test]
async fn links_survive_a_restart() {
    let fixture = Fixture::new();
    configure(&fixture, &[("data", ONE)]).await;
    let fixture = Fixture::of(fixture.root);
    configure(&fixture, &[]).await;
    assert_eq!(names(&fixture), Vec::<String>::new());
}

/// A state without links, from an older guest, is read.
#[tokio::test]
async fn state_without_links_is_read() {
    let fixture = Fixture::new();
    configure(&fixture, &[]).await;
    let mut state: serde_json::Value = serde_json::from_str(&fixture.root.read("var/lib/tarn/guest.json")).unwrap();
    state.as_object_mut().unwrap().remove("links").expect("it remembers links");
    state["configuration"].as_object_mut().unwrap().remove("volumes").expect("and volumes");
    let key = state["own_host_key"].clone();
    fixture.root.write("var/lib/tarn/guest.json", &state.to_string());
    let fixture = Fixture::of(fixture.root);
    configure(&fixture, &[("data", ONE)]).await;
    assert_eq!(leads_to(&fixture, "data"), Some(ONE.into()));
    let state: serde_json::Value = serde_json::from_str(&fixture.root.read("var/lib/tarn/guest.json")).unwrap();
    assert_eq!(state["own_host_key"], key, "nothing else was forgotten");
}

/// Files of the user are not replaced by links.
#[tokio::test]
async fn user_files_are_not_replaced() {
    let fixture = Fixture::as_other_user().unwrap_or_else(Fixture::new);
    let home = fixture.root.home();
    let elsewhere = fixture.root.path().join("etc");
    fixture.root.write("home/tester/file", "mine");
    std::fs::create_dir(home.join("directory")).unwrap();
    symlink(&elsewhere, home.join("link")).unwrap();
    symlink("nowhere", home.join("dangling")).unwrap();
    let before = elsewhere.metadata().unwrap().uid();
    let wanted = [("file", ONE), ("directory", ONE), ("link", ONE), ("dangling", ONE), ("free", ONE)];
    for volumes in [&wanted[..], &[], &wanted[..]] {
        configure(&fixture, volumes).await;
        assert_eq!(fixture.root.read("home/tester/file"), "mine");
        assert!(std::fs::symlink_metadata(home.join("directory")).unwrap().is_dir());
        assert_eq!(leads_to(&fixture, "link"), Some(elsewhere.clone()));
        assert_eq!(leads_to(&fixture, "dangling"), Some("nowhere".into()));
        assert_eq!(leads_to(&fixture, "free").is_some(), !volumes.is_empty());
    }
    assert_eq!(elsewhere.metadata().unwrap().uid(), before, "nothing is given away through a link");
    // A link that the user replaced belongs to the user from then on.
    std::fs::remove_file(home.join("free")).unwrap();
    fixture.root.write("home/tester/free", "mine too");
    configure(&fixture, &[]).await;
    assert_eq!(fixture.root.read("home/tester/free"), "mine too");
}

/// The owner of a file in place of a link does not change.
#[tokio::test]
async fn owner_of_user_file_is_kept() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::of(Root::new(OTHER_UID, OTHER_UID));
    fixture.root.write("home/tester/data", "of root");
    configure(&fixture, &[("data", ONE)]).await;
    assert_eq!(fixture.root.home().join("data").metadata().unwrap().uid(), 0);
}

/// A volume is given to the user once, when it is mounted first.
#[tokio::test]
async fn volume_owner_is_set_once() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let (volume, inside) = (fixture.root.path().join(&ONE[1..]), fixture.root.path().join(&ONE[1..]).join("file"));
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(&inside, "").unwrap();
    let owned_by = |path: &PathBuf, uid: u32| std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
    owned_by(&volume, 1000);
    owned_by(&inside, 1000);
    let owners = || [&volume, &inside].map(|path| path.metadata().unwrap().uid());
    configure(&fixture, &[("data", ONE)]).await;
    assert_eq!(owners(), [OTHER_UID, 1000], "nothing in it is changed");
    owned_by(&volume, 4711);
    configure(&fixture, &[("data", ONE)]).await;
    assert_eq!(owners(), [4711, 1000], "it was here already");
    configure(&fixture, &[]).await;
    owned_by(&volume, 0);
    configure(&fixture, &[("data", ONE)]).await;
    assert_eq!(owners(), [0, 1000], "that was on purpose");
}
