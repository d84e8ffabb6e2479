//! The files that jobs leave, and those that are none of theirs.

use std::os::unix::ffi::OsStrExt as _;

use tarn_link::{Answer, Frame, FromOutputs, JobOrder, OutputsOrder, Purpose};
use tokio::time::timeout;

use super::{order, run};
use crate::lab::{DEADLINE, Lab};

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

async fn collect(lab: &Lab, mine: &JobOrder, patterns: &[&str], only: &[&str], contents: bool) -> Collected {
    let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let order = OutputsOrder { job: mine.job.clone(), patterns: text(patterns), only: text(only), contents };
    let (answer, (mut reader, _writer)) = lab.ask(Purpose::Outputs(Box::new(order))).await.unwrap();
    assert_eq!(answer, Answer::Ready);
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

#[tokio::test]
async fn wanted_files_come_back_whole_and_in_order() {
    let Some(lab) = Lab::of_somebody() else { return };
    let mine = order(&[
        "mkdir -p out/sub other; printf one > out/b; printf two > out/sub/a; head -c 1000000 /dev/zero > big.pt; \
        touch other/x $'new\\nline.pt' .hidden.pt; ln -s out latest; ln -s . self",
    ]);
    run(&lab, &mine).await;
    let found = collect(&lab, &mine, &["out/", "*.pt", "out/b", "latest"], &[], true).await;
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
    let found = collect(&lab, &mine, &["**/a", "**"], &["out/sub/a", "nothing"], false).await;
    assert_eq!(found.files, [("out/sub/a".to_owned(), 3, Vec::new())]);
    let found = collect(&lab, &mine, &[], &[], true).await;
    assert!(found.files.is_empty() && found.skipped.is_empty());
}

#[tokio::test]
async fn directories_that_link_to_each_other_come_to_an_end() {
    let lab = Lab::new();
    let mine = order(&[
        "for i in $(seq 12); do mkdir $i; echo $i > $i/file; for j in $(seq 12); do ln -s ../$j $i/to-$j; done; done",
        "ln -s 1 best; ln -s 1 last",
    ]);
    run(&lab, &mine).await;
    let found = collect(&lab, &mine, &["**"], &[], false).await;
    for number in 1..=12 {
        assert!(found.paths().contains(&format!("{number}/file").as_str()), "{number}");
    }
    // Links that lie beside each other are followed, whoever else leads there.
    for path in ["best/file", "last/file", "1/to-2/file", "3/to-2/file"] {
        assert!(found.paths().contains(&path), "{path}");
    }
}

#[tokio::test]
async fn nothing_comes_from_elsewhere() {
    let Some(lab) = Lab::of_somebody() else { return };
    std::fs::write(lab.root.home().join("secret"), "secret").unwrap();
    let mine = order(&[
        "mkdir out; ln -s /etc/passwd out/absolute; ln -s ../../../secret out/upwards; ln -s /proc/self/environ out/magic; \
        ln -s .. out/loop; ln -s nowhere out/broken; mkfifo out/pipe; echo good > out/good; mkdir out/closed; \
        touch out/closed/x out/unreadable; chmod 0 out/closed out/unreadable; ln -s /etc etc",
    ]);
    run(&lab, &mine).await;
    let odd = lab.root.home().join("jobs").join(&mine.job).join("out").join(std::ffi::OsStr::from_bytes(b"bad\xff"));
    std::fs::write(odd, "").unwrap();
    let found =
        collect(&lab, &mine, &["out", "../../secret", "/etc/passwd", "etc", "etc/passwd", "["], &[], true).await;
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

#[tokio::test]
async fn a_job_without_a_directory_has_no_files() {
    let lab = Lab::new();
    let mine = order(&["rm -rf $PWD"]);
    run(&lab, &mine).await;
    assert!(collect(&lab, &mine, &["**"], &[], true).await.files.is_empty());
    let order = OutputsOrder { job: "j-zzzzzzzzzzzz".into(), patterns: Vec::new(), only: Vec::new(), contents: true };
    assert_eq!(lab.ask(Purpose::Outputs(Box::new(order))).await.unwrap().0, Answer::NoSuchJob);
}
