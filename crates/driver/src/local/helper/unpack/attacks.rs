//! Attacks the sandbox from inside, as if a layer had taken over the unpacking process. Each attempt is also made
//! outside, by the host's `root`, and succeeds there: otherwise its failure inside would prove nothing.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, setrlimit, waitpid};
use rustix::thread::{CapabilitySet, UnshareFlags, set_thread_res_uid};
use tar::EntryType;

use super::super::Failure;
use super::super::order::Unpack;
use super::tree::BLOCK;
use super::{entries, kernel, run_in_sandbox};

/// Ids that no user of the host has.
const ID_BASE: u32 = 0x5000_0000;

/// The maximum size of an unpacked layer.
const MOST: u64 = 1 << 20;

/// What is outside of the sandbox.
struct Outside {
    secret: PathBuf,
    listener: SocketAddr,
    bystander: Pid,
}

type Attempt = fn(&Outside) -> io::Result<()>;

/// Attempts that change something change only their own process, or a directory of the test.
const ATTEMPTS: &[(&str, Attempt)] = &[
    ("read a file of the host", |outside| fs::read(&outside.secret).map(drop)),
    ("climb out of its root", |outside| fs::read(format!("/../../../..{}", outside.secret.display())).map(drop)),
    ("look at processes", |_| fs::read_dir("/proc/self").map(drop)),
    ("send a signal to a process of the host", |outside| Ok(rustix::process::test_kill_process(outside.bystander)?)),
    ("reach the network", |outside| TcpStream::connect(outside.listener).map(drop)),
    ("make a socket", |_| UnixStream::pair().map(drop)),
    ("start a program", |_| Command::new("/bin/true").status().map(drop)),
    ("start a thread", |_| std::thread::Builder::new().spawn(|| ()).map(drop)),
    ("mount something", |_| Ok(mount("none", ".", "tmpfs", MountFlags::empty(), None)?)),
    ("make a namespace", |_| kernel::unshare(UnshareFlags::NEWUSER)),
    ("make a device", |_| {
        Ok(mknodat(
            CWD,
            format!("device-{}", std::process::id()),
            FileType::CharacterDevice,
            Mode::RUSR,
            makedev(1, 3),
        )?)
    }),
    ("change its root", |_| Ok(rustix::process::chroot(".")?)),
    ("change its user id", |_| {
        let other = rustix::process::Uid::from_raw(1);
        Ok(set_thread_res_uid(other, other, other)?)
    }),
    ("have more rights", |_| {
        let all = CapabilitySet::CHOWN | CapabilitySet::SYS_ADMIN;
        let sets = rustix::thread::CapabilitySets { effective: all, permitted: all, inheritable: all };
        Ok(rustix::thread::set_capabilities(None, sets)?)
    }),
    ("have more memory", |_| {
        Vec::<u8>::new().try_reserve_exact(100 << 20).map_err(|_| io::ErrorKind::OutOfMemory.into())
    }),
    ("open more files", |_| (0..100).map(|_| File::open(".")).collect::<io::Result<Vec<_>>>().map(drop)),
    ("change its limits", |_| {
        let few = Some(10);
        Ok(setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few })?)
    }),
];

/// Runs `inside` in the sandbox and `before` outside. Returns the lines that both write.
fn in_the_sandbox(before: impl Fn(&mut &PipeWriter), inside: impl Fn(&Unpack, &mut &PipeWriter)) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let order = Unpack { directory: directory.path().into(), id_base: ID_BASE, most_bytes: MOST, most_entries: 10 };
    let (ours, theirs) = io::pipe().unwrap();
    let child = kernel::fork(|| {
        let mut writer = &theirs;
        before(&mut writer);
        let ended = run_in_sandbox(&order, || {
            inside(&order, &mut writer);
            Ok(())
        });
        i32::from(!ended.is_ok_and(|ended| ended.exit_status() == Some(0)))
    });
    drop(theirs);
    let lines = BufReader::new(ours).lines().collect::<io::Result<Vec<_>>>().unwrap();
    assert_eq!(ended(child.unwrap()), Some(0), "{lines:?}");
    lines
}

/// Waits for a process, and returns its exit status.
fn ended(process: u32) -> Option<i32> {
    waitpid(Pid::from_raw(process.cast_signed()), WaitOptions::empty()).unwrap().and_then(|(_, end)| end.exit_status())
}

fn write_outcome(listener: &mut impl Write, attempt: &str, is_able: bool) {
    writeln!(listener, "{attempt}: {}", if is_able { "able" } else { "refused" }).expect("the test listens");
}

/// A process that ends with the test.
struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _collected = self.0.wait();
    }
}

#[test]
fn sandbox_refuses_every_attack() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make the sandbox");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let secret = place.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bystander = Bystander(Command::new("sleep").arg("600").spawn().unwrap());
    let outside =
        Outside { secret, listener: listener.local_addr().unwrap(), bystander: Pid::from_child(&bystander.0) };
    let before = |listener: &mut &PipeWriter| {
        // Mounts here are visible only to this process and end with it.
        kernel::unshare(UnshareFlags::NEWNS).expect("root may");
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("it is our own");
        std::env::set_current_dir(place.path()).expect("it is there");
        for (name, attempt) in ATTEMPTS {
            // Each in a separate process, because some attempts change their process.
            let child = kernel::fork(|| i32::from(attempt(&outside).is_err())).expect("outside, a process can be made");
            write_outcome(listener, name, ended(child) == Some(0));
        }
    };
    let inside = |_: &Unpack, listener: &mut &PipeWriter| {
        for (name, attempt) in ATTEMPTS {
            write_outcome(listener, name, attempt(&outside).is_ok());
        }
    };
    let all = |outcome: &str| ATTEMPTS.iter().map(|(name, _)| format!("{name}: {outcome}")).collect::<Vec<_>>();
    assert_eq!(in_the_sandbox(before, inside), [all("able"), all("refused")].concat());
}

#[test]
fn limits_of_bytes_and_entries_hold() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make the sandbox");
        return;
    }
    let archive = |kind: EntryType, names: &[String], size: u64| {
        let mut archive = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_size(size);
            header.set_entry_type(kind);
            archive.append_data(&mut header, name, io::repeat(7).take(size)).unwrap();
        }
        archive.into_inner().unwrap()
    };
    let names = |most: u32| (0..most).map(|number| format!("file-{number}")).collect::<Vec<_>>();
    let times = |name: &str, most: usize| vec![name.to_owned(); most];
    let many = "it holds more than 10 files";
    let file = EntryType::Regular;
    let mut noted = tar::Builder::new(Vec::new());
    noted.append_pax_extensions([("SCHILY.xattr.user.a", vec![7; 2 << 20].as_slice())]).unwrap();
    noted.append_data(&mut tar::Header::new_gnu(), "a", io::empty()).unwrap();
    for (layer, words, most_bytes) in [
        (archive(file, &names(10), 0), "10 unpacked", MOST),
        (archive(file, &names(11), 0), many, MOST),
        // Each replaces the previous one, but costs disk work all the same.
        (archive(file, &times("file", 11), 0), many, MOST),
        (archive(file, &names(1), 2 << 20), "full", MOST),
        (archive(file, &["a/".repeat(11)], 0), many, MOST),
        // An entry without contents takes a block all the same.
        (archive(file, &names(10), 0), "full", 9 * BLOCK),
        (archive(EntryType::Fifo, &names(10), 0), "full", 9 * BLOCK),
        (archive(EntryType::Directory, &times("a", 10), 0), "full", 9 * BLOCK),
        (archive(file, &times(".wh.a", 10), 0), "full", 9 * BLOCK),
        (archive(file, &times("a/.wh..wh..opq", 10), 0), "full", 9 * BLOCK),
        (archive(EntryType::Char, &names(11), 0), many, MOST),
        (noted.into_inner().unwrap(), "full", MOST),
        // Unlimited holes cost an archive nothing.
        (archive(EntryType::GNUSparse, &names(1), 0), "file-0 in it is sparse, which is not supported", MOST),
    ] {
        let unpack = |order: &Unpack, listener: &mut &PipeWriter| {
            let order = Unpack { most_bytes, ..order.clone() };
            let said = match entries::unpack_archive(&order, layer.as_slice()) {
                Ok(unpacked) => format!("{} unpacked", unpacked.entries),
                Err(Failure::Unfit(why)) => why,
                Err(Failure::Full) => "full".to_owned(),
                Err(_) => "failed".to_owned(),
            };
            writeln!(listener, "{said}").expect("the test listens");
        };
        assert_eq!(in_the_sandbox(|_| (), unpack), [words]);
    }
}
