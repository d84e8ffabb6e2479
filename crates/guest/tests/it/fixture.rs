//! A guest in its own directory.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tarn_guest::{Children, Guest, Settings};
use tarn_link::opening::{Opened, open};
use tarn_link::{Frame, FromGuest, Image, Program, Purpose, Reply, Session};
use tempfile::TempDir;
use tokio::io::DuplexStream;

/// The program under test.
pub(crate) const GUEST: &str = env!("CARGO_BIN_EXE_tarn-guest");

/// The deadline after which a test counts as stuck.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A guest, and the directory that it uses as `/`.
pub(crate) struct Fixture {
    pub(crate) guest: Arc<Guest>,
    pub(crate) root: Root,
}

/// A root directory with a user in it.
pub(crate) struct Root(TempDir);

/// A stream to a guest.
pub(crate) type Link = Opened<DuplexStream>;

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
    pub(crate) end: FromGuest,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

impl Root {
    /// A root whose user `tester` has these ids.
    pub(crate) fn new(uid: u32, gid: u32) -> Root {
        let directory = tempfile::Builder::new().prefix("guest-").tempdir().unwrap();
        let root = Root(directory);
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["etc", "home/tester"] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let passwd = format!("tester:x:{uid}:{gid}::/home/tester:/bin/bash\n");
        root.write("etc/passwd", &passwd);
        root.write("etc/group", &format!("testers:x:{gid}:\nextra:x:4242:tester\n"));
        std::os::unix::fs::chown(root.home(), Some(uid), Some(gid)).unwrap();
        root
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home/tester")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }
}

impl Fixture {
    /// Creates a guest whose sessions run as the user of the test.
    pub(crate) fn new() -> Fixture {
        Fixture::of(Root::new(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()))
    }

    /// Creates a guest whose sessions run as another user; `None`, with a note, if the test is not run by root.
    pub(crate) fn as_other_user() -> Option<Fixture> {
        is_root().then(|| Fixture::of(Root::new(OTHER_UID, OTHER_UID)))
    }

    /// Creates a guest on an existing root.
    pub(crate) fn of(root: Root) -> Fixture {
        Fixture::of_image(root, None)
    }

    /// Creates a guest on an existing root, with a container image.
    pub(crate) fn of_image(root: Root, image: Option<Image>) -> Fixture {
        let (children, collecting) = Children::new(false).unwrap();
        tokio::spawn(collecting);
        let (path, helper) = (root.path().to_owned(), GUEST.into());
        let settings = Settings { root: path, user: "tester".into(), image, helper, is_init: false };
        Fixture { guest: Guest::new(settings, children).unwrap(), root }
    }

    pub(crate) fn dial(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(256 << 10);
        tokio::spawn(self.guest.clone().serve_stream(theirs));
        ours
    }

    pub(crate) async fn ask(&self, purpose: Purpose) -> tarn_link::Result<(Reply, Link)> {
        tokio::time::timeout(DEADLINE, open(self.dial(), purpose)).await.expect("the guest answers")
    }

    pub(crate) async fn begin(&self, session: Session) -> Link {
        let (answer, link) = self.ask(Purpose::Session(Box::new(session))).await.unwrap();
        assert_eq!(answer, Reply::Ready);
        link
    }

    /// Runs a command line to its end, with no input.
    pub(crate) async fn run(&self, command: &str) -> Outcome {
        let mut link = self.begin(exec(command)).await;
        link.1.eof().await.unwrap();
        finish(&mut link).await
    }
}

/// The id of the user `nobody`.
pub(crate) const OTHER_UID: u32 = 65_534;

/// Returns a user id that no other test uses: the process limit of a user counts all tests on the host together.
pub(crate) fn unique_uid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_000_000 + std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        eprintln!("skipped: this test needs root");
    }
    is_root
}

pub(crate) fn exec(command: &str) -> Session {
    Session { program: Program::Exec(command.into()), ..Session::default() }
}

/// Reads a session to its end.
pub(crate) async fn finish((reader, _): &mut Link) -> Outcome {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let reading = async {
        loop {
            match reader.read().await.unwrap().expect("a session reports how it ended") {
                Frame::Data(data) => output.extend(data),
                Frame::Stderr(data) => errors.extend(data),
                Frame::Eof => {}
                Frame::Message(message) => {
                    let end: FromGuest = Frame::parse(&message).unwrap();
                    assert_eq!(reader.read().await.unwrap(), None, "nothing follows the end");
                    return end;
                }
            }
        }
    };
    let end = tokio::time::timeout(DEADLINE, reading).await.expect("the session ends");
    Outcome { output, errors, end }
}

/// Reads output until it contains a text.
pub(crate) async fn read_until((reader, _): &mut Link, wanted: &str) -> String {
    let mut seen = String::new();
    let reading = async {
        while !seen.contains(wanted) {
            match reader.read().await.unwrap().expect("the session goes on") {
                Frame::Data(data) | Frame::Stderr(data) => seen.push_str(&String::from_utf8_lossy(&data)),
                other => panic!("{other:?} after {seen}"),
            }
        }
    };
    let in_time = tokio::time::timeout(DEADLINE, reading).await;
    assert!(in_time.is_ok(), "{wanted:?} is not in {seen:?}");
    seen
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("never so: {what}"));
}
