//! The outputs of jobs, and files that do not belong to them.

use std::os::unix::ffi::OsStrExt as _;

use tarn_link::{Frame, FromOutputs, JobOrder, OutputsOrder, Purpose, Reply};
use tokio::time::timeout;

use super::{order, run};
use crate::fixture::{DEADLINE, Fixture};

#[derive(Debug, Default)]
struct Collected {
    /// Paths, sizes and contents.
    files: Vec<(String, u64, Vec<u8>)>,
    skipped: Vec<(String, String)>,
}

impl Collected {
    fn paths(&self) -> Vec<&str> {
        self.files.iter().map(|(path, _, _)| path.as_str()).collect()
    }
}

async fn collect(fixture: &Fixture, mine: &JobOrder, patterns: &[&str], only: &[&str], contents: bool) -> Collected {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let order = OutputsOrder { job: mine.job.clone(), patterns: text(patterns), only: text(only), contents };
    let (answer, (mut reader, _writer)) = fixture.ask(Purpose::Outputs(Box::new(order))).await.unwrap();
    assert_eq!(answer, Reply::Ready);
    let mut collected = Collected::default();
    let reading = async {
        loop {
            match reader.read().await.unwrap().expect("an end is told") {
                Frame::Data(data) => collected.files.last_mut().unwrap().2.extend(data),
                Frame::Eof => assert!(contents),
                Frame::Stderr(_) => panic!("there are no errors"),
                Frame::Message(message) => match Frame::parse(&message).unwrap() {
                    FromOutputs::File { path, size } => collected.files.push((path, size, Vec::new())),
                    FromOutputs::Skipped { path, reason } => collected.skipped.push((path, reason)),
                    FromOutputs::End => return assert_eq!(reader.read().await.unwrap(), None),
                },
            }
        }
    };
    timeout(DEADLINE, reading).await.expect("the files come to an end");
    collected
}

/// Matching files are sent completely and in order.
#[tokio::test]
async fn wanted_files_are_sent_in_order() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let mine = order(&[
        "mkdir -p out/sub other; printf one > out/b; printf two > out/sub/a; head -c 1000000 /dev/zero > big.pt; \
        touch other/x $'new\\nline.pt' .hidden.pt; ln -s out latest; ln -s . self",
    ]);
    run(&fixture, &mine).await;
    let found = collect(&fixture, &mine, &["out/", "*.pt", "out/b", "latest"], &[], true).await;
    assert_eq!(
        found.paths(),
        [".hidden.pt", "big.pt", "latest/b", "latest/sub/a", "new\nline.pt", "out/b", "out/sub/a"]
    );
    assert_eq!(found.skipped, []);
    for (path, size, contents) in &found.files {
        assert_eq!(*size, contents.len() as u64, "{path}");
    }
    assert_eq!(found.files[1].2, vec![0; 1_000_000]);
    assert_eq!(found.files[5].2, b"one");
    let found = collect(&fixture, &mine, &["**/a", "**"], &["out/sub/a", "nothing"], false).await;
    assert_eq!(found.files, [("out/sub/a".to_owned(), 3, Vec::new())]);
    let found = collect(&fixture, &mine, &[], &[], true).await;
    assert!(found.files.is_empty() && found.skipped.is_empty());
}

/// A walk through directories that link to each other terminates.
#[tokio::test]
async fn linked_directories_terminate() {
    let fixture = Fixture::new();
    let mine = order(&[
        "for i in $(seq 12); do mkdir $i; echo $i > $i/file; for j in $(seq 12); do ln -s ../$j $i/to-$j; done; done",
        "ln -s 1 best; ln -s 1 last",
    ]);
    run(&fixture, &mine).await;
    let found = collect(&fixture, &mine, &["**"], &[], false).await;
    for number in 1..=12 {
        assert!(found.paths().contains(&format!("{number}/file").as_str()), "{number}");
    }
    // Links next to each other are followed, even if they lead to the same directory.
    for path in ["best/file", "last/file", "1/to-2/file", "3/to-2/file"] {
        assert!(found.paths().contains(&path), "{path}");
    }
}

/// No file outside the job's directory is sent.
#[tokio::test]
async fn outside_files_are_never_sent() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    std::fs::write(fixture.root.home().join("secret"), "secret").unwrap();
    let mine = order(&[
        "mkdir out; ln -s /etc/passwd out/absolute; ln -s ../../../secret out/upwards; ln -s /proc/self/environ out/magic; \
        ln -s .. out/loop; ln -s nowhere out/broken; mkfifo out/pipe; echo good > out/good; mkdir out/closed; \
        touch out/closed/x out/unreadable; chmod 0 out/closed out/unreadable; ln -s /etc etc",
    ]);
    run(&fixture, &mine).await;
    let odd =
        fixture.root.home().join("jobs").join(&mine.job).join("out").join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    std::fs::write(odd, "").unwrap();
    let found =
        collect(&fixture, &mine, &["out", "../../secret", "/etc/passwd", "etc", "etc/passwd", "["], &[], true).await;
    assert_eq!(found.paths(), ["out/good"]);
    let skipped: Vec<&str> = found.skipped.iter().map(|(path, _)| path.as_str()).collect();
    for path in [
        "../../secret",
        "/etc/passwd",
        "[",
        "etc",
        "out/absolute",
        "out/upwards",
        "out/magic",
        "out/broken",
        "out/pipe",
        "out/closed",
        "out/unreadable",
        "out/bad\u{fffd}",
    ] {
        assert!(skipped.contains(&path), "{path} is not in {skipped:?}");
    }
}

/// A job without a directory has no files.
#[tokio::test]
async fn missing_directory_has_no_files() {
    let fixture = Fixture::new();
    let mine = order(&["rm -rf $PWD"]);
    run(&fixture, &mine).await;
    assert!(collect(&fixture, &mine, &["**"], &[], true).await.files.is_empty());
    let order = OutputsOrder { job: "j-zzzzzzzzzzzz".into(), patterns: Vec::new(), only: Vec::new(), contents: true };
    assert_eq!(fixture.ask(Purpose::Outputs(Box::new(order))).await.unwrap().0, Reply::NoSuchJob);
}
