//! Copies are as good as what they are copies of.

use std::io::ErrorKind;

use crate::{Place, body};

#[tokio::test]
async fn a_link_outlives_the_original() {
    let place = Place::new();
    let sent = body(50_000);
    let original = place.put(&sent).await;
    let link = place.files.link(original.id()).await.unwrap();
    assert_ne!(link.id(), original.id());
    drop(original);
    place.settle(1).await;
    assert!(place.get(link.id(), 0, 50_000).await == sent);
    let gone = link.id().clone();
    drop(link);
    place.settle(0).await;
    assert_eq!(place.files.link(&gone).await.unwrap_err().kind(), ErrorKind::NotFound);
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
    let copy = place.files.link(original.id()).await.unwrap();
    drop(original);
    place.settle(1).await;
    assert!(place.get(copy.id(), 0, 50_000).await == sent);
}

#[tokio::test]
async fn a_range_is_copied_exactly() {
    let place = Place::new();
    let sent = body(20_000_000);
    let original = place.put(&sent).await;
    for (offset, length) in [(0, 20_000_000), (1, 0), (4097, 9_000_001), (19_999_999, 1)] {
        let copy = place.files.copy(original.id(), offset as u64, length as u64).await.unwrap();
        assert!(place.get(copy.id(), 0, length as u64).await == sent[offset..offset + length], "{offset}");
    }
    let beyond = place.files.copy(original.id(), 19_999_999, 2).await;
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    place.settle(1).await;
}
