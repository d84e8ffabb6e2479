//! Copies are as good as what they are copies of.

use std::io::ErrorKind;

use crate::files::{Place, body};

#[tokio::test]
async fn a_link_outlives_the_original() {
    let place = Place::new();
    let sent = body(50_000);
    let original = place.put(&sent).await;
    let link = place.link(original.id()).await;
    assert_ne!(link.id(), original.id());
    drop(original);
    place.settle(1).await;
    assert!(place.get(link.id(), 0, 50_000).await == sent);
    let gone = link.id().clone();
    drop(link);
    place.settle(0).await;
    assert_eq!(place.files.link_all(vec![gone]).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn many_links_are_made_at_once_or_not_at_all() {
    let place = Place::new();
    let mut originals = Vec::new();
    for number in 0..200_usize {
        originals.push(place.put(&body(20_000 + number)).await);
    }
    let ids: Vec<_> = originals.iter().map(|original| original.id().clone()).collect();
    let links = place.files.link_all(ids.clone()).await.unwrap();
    originals.truncate(100);
    place.settle(300).await;
    for (number, link) in links.iter().enumerate() {
        let length = 20_000 + number;
        assert!(place.get(link.id(), 0, length as u64).await == body(length), "{number}");
    }
    assert_eq!(place.files.link_all(ids).await.unwrap_err().kind(), ErrorKind::NotFound);
    place.settle(300).await;
    drop((originals, links));
    place.settle(0).await;
}

/// File systems limit how many names a file may have: ext4 to 65,000.
#[tokio::test]
async fn a_file_with_all_the_names_it_may_have_is_copied() {
    let place = Place::new();
    let sent = body(50_000);
    let original = place.put(&sent).await;
    let path = place.path(original.id());
    let full = (0..66_000).any(|number| std::fs::hard_link(&path, place.dir.path().join(number.to_string())).is_err());
    if !full {
        println!("skipped: files may have more names here");
        return;
    }
    let copy = place.link(original.id()).await;
    drop(original);
    place.settle(1).await;
    assert!(place.get(copy.id(), 0, 50_000).await == sent);
}
