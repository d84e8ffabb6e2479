//! Copies of files are independent of their originals.

use std::io::ErrorKind;

use crate::files::{TestFiles, body};

/// A link outlives its original.
#[tokio::test]
async fn link_outlives_original() {
    let test = TestFiles::new();
    let sent = body(50_000);
    let original = test.put(&sent).await;
    let link = test.link(original.id()).await;
    assert_ne!(link.id(), original.id());
    drop(original);
    test.settle(1).await;
    assert!(test.get(link.id(), 0, 50_000).await == sent);
    let gone = link.id().clone();
    drop(link);
    test.settle(0).await;
    assert_eq!(test.files.link_all(vec![gone]).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Many links are created together or not at all.
#[tokio::test]
async fn links_are_created_together() {
    let test = TestFiles::new();
    let mut originals = Vec::new();
    for number in 0..200_usize {
        originals.push(test.put(&body(20_000 + number)).await);
    }
    let ids: Vec<_> = originals.iter().map(|original| original.id().clone()).collect();
    let links = test.files.link_all(ids.clone()).await.unwrap();
    originals.truncate(100);
    test.settle(300).await;
    for (number, link) in links.iter().enumerate() {
        let length = 20_000 + number;
        assert!(test.get(link.id(), 0, length as u64).await == body(length), "{number}");
    }
    assert_eq!(test.files.link_all(ids).await.unwrap_err().kind(), ErrorKind::NotFound);
    test.settle(300).await;
    drop((originals, links));
    test.settle(0).await;
}

/// A file with the maximum number of links is copied: ext4, for example, allows 65,000.
#[tokio::test]
async fn file_with_maximum_links_is_copied() {
    let test = TestFiles::new();
    let sent = body(50_000);
    let original = test.put(&sent).await;
    let path = test.path(original.id());
    let full = (0..66_000).any(|number| std::fs::hard_link(&path, test.dir.path().join(number.to_string())).is_err());
    if !full {
        println!("skipped: files may have more names here");
        return;
    }
    let copy = test.link(original.id()).await;
    drop(original);
    test.settle(1).await;
    assert!(test.get(copy.id(), 0, 50_000).await == sent);
}
