//! Programs on the machine.

use tokio::io::AsyncReadExt;

use crate::front::{Front, command, finish, text, until};

#[tokio::test]
async fn output_errors_and_exit_codes_come_through() {
    let front = Front::start().await;
    let output = front.run("echo out; echo err >&2; exit 7", b"").await;
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(7), "out\n".into(), "err\n".into())
    );
    let output = front.run("true", b"").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[tokio::test]
async fn a_signal_is_told_as_one() {
    let front = Front::start().await;
    let output = finish(front.ssh(&["-v", "ubuntu@127.0.0.1", "kill -TERM $$"]), b"").await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(text(&output.stderr).contains("rtype exit-signal"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn the_end_of_input_reaches_the_program() {
    let front = Front::start().await;
    let output = front.run("cat; echo done", b"hello ").await;
    assert_eq!(text(&output.stdout), "hello done\n");
}

#[tokio::test]
async fn a_shell_reads_what_is_typed() {
    let front = Front::start().await;
    let output = finish(front.ssh(&["-T", "ubuntu@127.0.0.1"]), b"echo $((6 * 7))\nexit 3\n").await;
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "42\n".into()));
}

#[tokio::test]
async fn the_terminal_and_the_environment_are_passed_on() {
    let front = Front::start().await;
    let words = front.options().join(" ");
    // A terminal for the client, so that it has a size to tell.
    let line =
        format!("stty cols 93 rows 41; TERM=vt220 ssh {words} -tt -o SetEnv=TARN_TEST=yes ubuntu@127.0.0.1 describe");
    let output = finish(command("script", vec!["-qec".into(), line], &["/dev/null"]), b"\n").await;
    let seen = text(&output.stdout);
    assert!(seen.contains("vt220 93x41") && seen.contains(r#"("TARN_TEST", "yes")"#), "{seen}");
}

#[tokio::test]
async fn what_cannot_be_is_refused() {
    let front = Front::start().await;
    let output = finish(front.ssh(&["-s", "ubuntu@127.0.0.1", "netconf"]), b"").await;
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("subsystem request failed"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn many_sessions_share_a_connection() {
    let front = Front::start().await;
    let control = front.path("control").display().to_string();
    let _master = front.ssh(&["-M", "-S", &control, "-N", "ubuntu@127.0.0.1"]).spawn().unwrap();
    until("the master listens", async || front.path("control").exists().then_some(())).await;
    // This one sends much, and nobody reads it.
    let mut stalled = front.ssh(&["-S", &control, "ubuntu@127.0.0.1", "echo ready; exec sleep 1000"]);
    let mut stalled = stalled.stdin(std::fs::File::open("/dev/zero").unwrap()).spawn().unwrap();
    let mut ready = [0; 6];
    stalled.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    let run = async |n: u32| {
        let line = format!("cat; exit {n}");
        let input = crate::front::noise(300_000);
        let output = finish(front.ssh(&["-S", &control, "ubuntu@127.0.0.1", &line]), &input).await;
        assert!(output.stdout == input, "session {n}");
        assert_eq!(output.status.code(), Some(n as i32), "{}", text(&output.stderr));
    };
    for round in 0..3 {
        tokio::join!(run(round), run(10 + round), run(20 + round), run(30 + round));
    }
    assert!(stalled.try_wait().unwrap().is_none(), "the one that nobody reads still waits");
}

#[tokio::test]
async fn whoever_hangs_up_ends_his_program() {
    let front = Front::start().await;
    let mut ssh = front.ssh(&["ubuntu@127.0.0.1", "echo $$; exec sleep 1000"]).spawn().unwrap();
    let mut pid = String::new();
    while !pid.ends_with('\n') {
        pid.push(char::from(ssh.stdout.as_mut().unwrap().read_u8().await.unwrap()));
    }
    let process = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(process.exists());
    ssh.kill().await.unwrap();
    until("the program ends", async || (!process.exists()).then_some(())).await;
}
