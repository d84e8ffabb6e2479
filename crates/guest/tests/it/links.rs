//! The links to volumes in the home directory, and what the user puts in their way.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use tarn_link::{Answer, Configuration, Purpose};

use crate::lab::{Lab, Root, SOMEBODY, is_root};

const ONE: &str = "/mnt/s-000000000001";
const TWO: &str = "/mnt/s-000000000002";

async fn configure(lab: &Lab, volumes: &[(&str, &str)]) {
    let volumes = volumes.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect();
    let configuration = Configuration { volumes, ..Configuration::default() };
    let (answer, _) = lab.ask(Purpose::Configure(Box::new(configuration))).await.unwrap();
    assert_eq!(answer, Answer::Ready);
}

fn leads_to(lab: &Lab, name: &str) -> Option<PathBuf> {
    std::fs::read_link(lab.root.home().join(name)).ok()
}

fn names(lab: &Lab) -> Vec<String> {
    let entries = std::fs::read_dir(lab.root.home()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn links_come_are_renamed_and_go() {
    let lab = Lab::of_somebody().unwrap_or_else(Lab::new);
    configure(&lab, &[("data", ONE)]).await;
    assert_eq!(leads_to(&lab, "data"), Some(ONE.into()));
    let owner = std::fs::symlink_metadata(lab.root.home().join("data")).unwrap().uid();
    assert_eq!(owner, lab.root.home().metadata().unwrap().uid(), "it is the user's own");
    configure(&lab, &[("data", ONE)]).await;
    configure(&lab, &[("more", ONE)]).await;
    assert_eq!((names(&lab), leads_to(&lab, "more")), (vec!["more".to_owned()], Some(ONE.into())));
    // Another volume of the same name takes the place of the first.
    configure(&lab, &[("more", TWO)]).await;
    assert_eq!(leads_to(&lab, "more"), Some(TWO.into()));
    configure(&lab, &[]).await;
    assert_eq!(names(&lab), Vec::<String>::new());
}

#[tokio::test]
async fn a_link_is_remembered_across_a_restart_of_the_guest() {
    let lab = Lab::new();
    configure(&lab, &[("data", ONE)]).await;
    let lab = Lab::of(lab.root);
    configure(&lab, &[]).await;
    assert_eq!(names(&lab), Vec::<String>::new());
}

#[tokio::test]
async fn a_state_from_before_there_were_links_is_understood() {
    let lab = Lab::new();
    configure(&lab, &[]).await;
    let mut state: serde_json::Value = serde_json::from_str(&lab.root.read("var/lib/tarn/guest.json")).unwrap();
    state.as_object_mut().unwrap().remove("links").expect("it remembers links");
    state["configuration"].as_object_mut().unwrap().remove("volumes").expect("and volumes");
    let key = state["own_host_key"].clone();
    lab.root.write("var/lib/tarn/guest.json", &state.to_string());
    let lab = Lab::of(lab.root);
    configure(&lab, &[("data", ONE)]).await;
    assert_eq!(leads_to(&lab, "data"), Some(ONE.into()));
    let state: serde_json::Value = serde_json::from_str(&lab.root.read("var/lib/tarn/guest.json")).unwrap();
    assert_eq!(state["own_host_key"], key, "nothing else was forgotten");
}

#[tokio::test]
async fn what_the_user_put_there_stays() {
    let lab = Lab::of_somebody().unwrap_or_else(Lab::new);
    let home = lab.root.home();
    let elsewhere = lab.root.path().join("etc");
    lab.root.write("home/tester/file", "mine");
    std::fs::create_dir(home.join("directory")).unwrap();
    symlink(&elsewhere, home.join("link")).unwrap();
    symlink("nowhere", home.join("dangling")).unwrap();
    let before = elsewhere.metadata().unwrap().uid();
    let wanted = [("file", ONE), ("directory", ONE), ("link", ONE), ("dangling", ONE), ("free", ONE)];
    for volumes in [&wanted[..], &[], &wanted[..]] {
        configure(&lab, volumes).await;
        assert_eq!(lab.root.read("home/tester/file"), "mine");
        assert!(std::fs::symlink_metadata(home.join("directory")).unwrap().is_dir());
        assert_eq!(leads_to(&lab, "link"), Some(elsewhere.clone()));
        assert_eq!(leads_to(&lab, "dangling"), Some("nowhere".into()));
        assert_eq!(leads_to(&lab, "free").is_some(), !volumes.is_empty());
    }
    assert_eq!(elsewhere.metadata().unwrap().uid(), before, "nothing is given away through a link");
    // A link of ours that the user replaced is his from then on.
    std::fs::remove_file(home.join("free")).unwrap();
    lab.root.write("home/tester/free", "mine too");
    configure(&lab, &[]).await;
    assert_eq!(lab.root.read("home/tester/free"), "mine too");
}

#[tokio::test]
async fn the_owner_of_a_file_in_the_way_does_not_change() {
    if !is_root() {
        return;
    }
    let lab = Lab::of(Root::new(SOMEBODY, SOMEBODY));
    lab.root.write("home/tester/data", "of root");
    configure(&lab, &[("data", ONE)]).await;
    assert_eq!(lab.root.home().join("data").metadata().unwrap().uid(), 0);
}

#[tokio::test]
async fn a_volume_that_comes_is_the_users_and_stays_as_it_is_then() {
    let Some(lab) = Lab::of_somebody() else { return };
    let (volume, inside) = (lab.root.path().join(&ONE[1..]), lab.root.path().join(&ONE[1..]).join("file"));
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(&inside, "").unwrap();
    let owned_by = |path: &PathBuf, uid: u32| std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
    owned_by(&volume, 1000);
    owned_by(&inside, 1000);
    let owners = || [&volume, &inside].map(|path| path.metadata().unwrap().uid());
    configure(&lab, &[("data", ONE)]).await;
    assert_eq!(owners(), [SOMEBODY, 1000], "nothing in it is changed");
    owned_by(&volume, 4711);
    configure(&lab, &[("data", ONE)]).await;
    assert_eq!(owners(), [4711, 1000], "it was here already");
    configure(&lab, &[]).await;
    owned_by(&volume, 0);
    configure(&lab, &[("data", ONE)]).await;
    assert_eq!(owners(), [0, 1000], "that was on purpose");
}
