//! Mounts of the tests, which end with the process that made them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Runs commands line by line, and prints the output and the exit code of each.
const SHELL: &str = r#"mount -t xfs -o loop "$0" "$1" && cd "$1" && echo READY &&
    while read -r line; do eval "$line" 2>&1; echo "END $?"; done"#;

/// A volume that is mounted where only one process sees it, as by an operator or in an instance.
pub(super) struct TestMount {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    at: PathBuf,
}

impl TestMount {
    pub(super) fn at(file: &Path, scratch: &Path) -> Self {
        let at = scratch.join("mounted-by-the-test");
        fs::create_dir(&at).unwrap();
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation", "private", "sh", "-c", SHELL]).arg(file).arg(&at);
        let mut process = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut mounted = TestMount { process, input, output: BufReader::new(output), at };
        assert_eq!(mounted.line(), "READY\n", "the volume can be mounted");
        mounted
    }

    /// Runs a command that must succeed, and returns its output.
    pub(super) fn run(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut output = String::new();
        loop {
            let line = self.line();
            match line.strip_prefix("END ") {
                Some(code) => {
                    assert_eq!(code, "0\n", "{command} works: {output}");
                    return output;
                }
                None => output.push_str(&line),
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the process with the mount lives");
        line
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        // The mount namespace ends with its only process, and the mount and its device with it.
        let _gone = (self.process.kill(), self.process.wait(), fs::remove_dir(&self.at));
    }
}

/// A small disk in memory.
pub(super) struct MemoryDisk(tempfile::TempDir);

impl MemoryDisk {
    pub(super) fn of(bytes: u64) -> Self {
        let at = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tarn-test"]).arg(at.path());
        assert!(mount.status().unwrap().success(), "a disk in memory can be mounted");
        MemoryDisk(at)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}
