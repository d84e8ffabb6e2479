//! Programs on the target.

use tokio::io::AsyncReadExt;

use crate::server::{TestServer, command, finish, text, until};

/// Output, errors and exit codes arrive.
#[tokio::test]
async fn output_and_exit_codes_arrive() {
    let server = TestServer::start().await;
    let output = server.run("echo out; echo err >&2; exit 7", b"").await;
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(7), "out\n".into(), "err\n".into())
    );
    let output = server.run("true", b"").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// A signal that ended the program is reported as one.
#[tokio::test]
async fn signal_is_reported() {
    let server = TestServer::start().await;
    let output = finish(server.ssh(&["-v", "ubuntu@127.0.0.1", "kill -TERM $$"]), b"").await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(text(&output.stderr).contains("rtype exit-signal"), "{}", text(&output.stderr));
}

/// The end of input reaches the program.
#[tokio::test]
async fn end_of_input_arrives() {
    let server = TestServer::start().await;
    let output = server.run("cat; echo done", b"hello ").await;
    assert_eq!(text(&output.stdout), "hello done\n");
}

/// A shell reads the input.
#[tokio::test]
async fn shell_reads_input() {
    let server = TestServer::start().await;
    let output = finish(server.ssh(&["-T", "ubuntu@127.0.0.1"]), b"echo $((6 * 7))\nexit 3\n").await;
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "42\n".into()));
}

/// The terminal and the environment are forwarded.
#[tokio::test]
async fn terminal_and_environment_are_forwarded() {
    let server = TestServer::start().await;
    let words = server.options().join(" ");
    // A terminal for the client, so that it has a size to send.
    let line =
        format!("stty cols 93 rows 41; TERM=vt220 ssh {words} -tt -o SetEnv=TARN_TEST=yes ubuntu@127.0.0.1 describe");
    let output = finish(command("script", vec!["-qec".into(), line], &["/dev/null"]), b"\n").await;
    let seen = text(&output.stdout);
    assert!(seen.contains("vt220 93x41") && seen.contains(r#"("TARN_TEST", "yes")"#), "{seen}");
}

/// An unknown subsystem is refused.
#[tokio::test]
async fn unknown_subsystem_is_refused() {
    let server = TestServer::start().await;
    let output = finish(server.ssh(&["-s", "ubuntu@127.0.0.1", "netconf"]), b"").await;
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("subsystem request failed"), "{}", text(&output.stderr));
}

/// Many sessions share a connection, and a stalled one blocks no other.
#[tokio::test]
async fn sessions_share_a_connection() {
    let server = TestServer::start().await;
    let control = server.path("control").display().to_string();
    let _master = server.ssh(&["-M", "-S", &control, "-N", "ubuntu@127.0.0.1"]).spawn().unwrap();
    until("the master listens", async || server.path("control").exists().then_some(())).await;
    // This session sends much data that the program does not read.
    let mut stalled = server.ssh(&["-S", &control, "ubuntu@127.0.0.1", "echo ready; exec sleep 1000"]);
    let mut stalled = stalled.stdin(std::fs::File::open("/dev/zero").unwrap()).spawn().unwrap();
    let mut ready = [0; 6];
    stalled.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    let run = async |n: u32| {
        let line = format!("cat; exit {n}");
        let input = crate::server::noise(300_000);
        let output = finish(server.ssh(&["-S", &control, "ubuntu@127.0.0.1", &line]), &input).await;
        assert!(output.stdout == input, "session {n}");
        assert_eq!(output.status.code(), Some(n as i32), "{}", text(&output.stderr));
    };
    for round in 0..3 {
        tokio::join!(run(round), run(10 + round), run(20 + round), run(30 + round));
    }
    assert!(stalled.try_wait().unwrap().is_none(), "the stalled session still waits");
}

/// Hanging up ends the program.
#[tokio::test]
async fn hang_up_ends_the_program() {
    let server = TestServer::start().await;
    let mut ssh = server.ssh(&["ubuntu@127.0.0.1", "echo $$; exec sleep 1000"]).spawn().unwrap();
    let mut pid = String::new();
    while !pid.ends_with('\n') {
        pid.push(char::from(ssh.stdout.as_mut().unwrap().read_u8().await.unwrap()));
    }
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(process.exists());
    ssh.kill().await.unwrap();
    until("the program ends", async || (!process.exists()).then_some(())).await;
}
