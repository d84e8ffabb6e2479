//! The file transfer service, tested with OpenSSH's client and with malformed packets.

use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fixture::GUEST;

/// Runs a batch of client commands; returns the output, and whether all of them succeeded.
fn batch(directory: &Path, commands: &str) -> (String, bool) {
    let mut client = Command::new("sftp")
        .args(["-b", "-", "-D", &format!("{GUEST} sftp-server")])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.success())
}

fn works(directory: &Path, commands: &str) -> String {
    let (text, worked) = batch(directory, commands);
    assert!(worked, "{text}");
    text
}

fn fails(directory: &Path, commands: &str) -> String {
    let (text, worked) = batch(directory, commands);
    assert!(!worked, "{text}");
    text
}

/// Files come back unchanged.
#[test]
fn files_round_trip() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let data: Vec<u8> = (0..9_000_000_u32).map(|index| (index * 31 + (index >> 12)) as u8).collect();
    std::fs::write(at("one"), &data).unwrap();
    std::fs::set_permissions(at("one"), std::fs::Permissions::from_mode(0o640)).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    works(directory.path(), "put -p one two\nget -p two three\nput empty nothing\nput -f one synced\n");
    assert!(std::fs::read(at("two")).unwrap() == data && std::fs::read(at("three")).unwrap() == data);
    let (one, three) = (at("one").metadata().unwrap(), at("three").metadata().unwrap());
    assert_eq!((one.mode(), one.mtime()), (three.mode(), three.mtime()));
    assert_eq!(at("nothing").metadata().unwrap().len(), 0);
    // An interrupted transfer is resumed.
    std::fs::write(at("half"), &data[..1_234_567]).unwrap();
    works(directory.path(), "reput one half\n");
    assert!(std::fs::read(at("half")).unwrap() == data);
}

/// Renames behave as clients expect.
#[test]
fn renames_match_client_expectations() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("a"), "a").unwrap();
    std::fs::write(at("b"), "b").unwrap();
    // By default the client uses OpenSSH's rename, which replaces files; the standard's does not.
    assert!(fails(directory.path(), "rename -l a b\n").contains("Failure"));
    assert_eq!(std::fs::read_to_string(at("b")).unwrap(), "b");
    works(directory.path(), "rename a b\nrename -l b c\nmkdir d\nln -s c link\nln c hard\n");
    assert_eq!(std::fs::read_to_string(at("c")).unwrap(), "a");
    assert_eq!(std::fs::read_link(at("link")).unwrap(), Path::new("c"));
    assert_eq!(at("hard").metadata().unwrap().nlink(), 2);
    works(directory.path(), "rm hard\nrmdir d\nrm link\n");
    assert!(!at("d").exists() && !at("hard").exists() && at("c").exists());
    assert!(fails(directory.path(), "rmdir c\n").contains("No such file"));
    assert!(fails(directory.path(), "rm missing\n").contains("No such file"));
}

/// Attributes are set and listed.
#[test]
fn attributes_are_set_and_listed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "12345").unwrap();
    let text = works(directory.path(), "chmod 751 file\nls -l file\nls -la\ndf\npwd\n");
    assert!(text.contains("-rwxr-x--x"), "{text}");
    assert!(text.contains(" . ") || text.lines().any(|line| line.trim_end().ends_with(" .")), "{text}");
    assert!(text.contains(directory.path().to_str().unwrap()), "{text}");
    assert!(text.contains("%Capacity"), "{text}");
    assert_eq!(at("file").metadata().unwrap().mode() & 0o777, 0o751);
    std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
    assert!(works(directory.path(), "ls -l dangling\n").contains("dangling"));
    if rustix::process::getuid().is_root() {
        works(directory.path(), "chown 1234 file\nchgrp 2345 file\n");
        let found = at("file").metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 2345));
    }
}

/// Large directories and odd names are listed.
#[test]
fn large_directories_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..1000 {
        std::fs::write(directory.path().join(format!("file-{number}")), "").unwrap();
    }
    let odd = std::ffi::OsStr::from_bytes(b"not-\xff-text");
    std::fs::write(directory.path().join(odd), "odd").unwrap();
    let text = works(directory.path(), "ls -1\n");
    assert_eq!(text.matches("file-").count(), 1000);
    std::fs::create_dir(directory.path().join("copy")).unwrap();
    // The client fetches the exact name from the listing.
    works(directory.path(), "get not-* copy/\n");
    assert_eq!(std::fs::read_to_string(directory.path().join("copy").join(odd)).unwrap(), "odd");
}

/// Whole trees are copied.
#[test]
fn trees_are_copied() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir_all(at("tree/below/deep")).unwrap();
    std::fs::write(at("tree/below/deep/file"), "deep").unwrap();
    std::fs::create_dir(at("far")).unwrap();
    works(directory.path(), "put -R tree far/\nget -R far/tree back\n");
    assert_eq!(std::fs::read_to_string(at("back/below/deep/file")).unwrap(), "deep");
}

/// Sends raw packets, and reads all replies.
fn raw(packets: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut server = Command::new(GUEST)
        .arg("sftp-server")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    for packet in packets {
        let length = u32::try_from(packet.len()).unwrap().to_be_bytes();
        // The server may have ended after an earlier packet.
        let _ = input.write_all(&length).and_then(|()| input.write_all(packet));
    }
    drop(input);
    let mut answers = Vec::new();
    server.stdout.take().unwrap().read_to_end(&mut answers).unwrap();
    (answers, server.wait().unwrap().success())
}

/// Malformed packets get an error or end the service.
#[test]
fn malformed_packets_are_handled() {
    // Too short, an unknown kind, a string longer than its packet, and an unknown handle.
    let (answers, worked) =
        raw(&[&[3], &[99, 0, 0, 0, 7], &[13, 0, 0, 0, 8, 0, 0, 1, 0], &[4, 0, 0, 0, 9, 0, 0, 0, 1, 7]]);
    assert!(worked);
    let codes: Vec<u8> = statuses(&answers);
    assert_eq!(codes, [5, 8, 5, 2]);
    let (answers, worked) = raw(&[&[], &[99, 0, 0, 0, 7]]);
    assert!(!worked && answers.is_empty(), "an empty packet cannot be, so nothing after it can be trusted");
    let (answers, worked) = raw(&[&vec![0; 300 << 10]]);
    assert!(!worked && answers.is_empty());
}

fn statuses(mut answers: &[u8]) -> Vec<u8> {
    let mut codes = Vec::new();
    while let Some((length, rest)) = answers.split_first_chunk::<4>() {
        let (packet, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        assert_eq!(packet[0], 101);
        codes.push(packet[8]);
        answers = rest;
    }
    codes
}
