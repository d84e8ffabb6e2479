//! Large transfers in both directions, with bounded memory.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{TestServer, command, finish, noise, text, until};

const SIZE: usize = 50_000_000;

/// Large transfers arrive unchanged.
#[tokio::test]
async fn large_transfers_are_unchanged() {
    let server = TestServer::start().await;
    let data = noise(SIZE);
    let file = server.path("uploaded");
    let output = server.run(&format!("cat > {}", file.display()), &data).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(&file).unwrap() == data, "what arrived differs");
    let output = server.run(&format!("cat {}", file.display()), b"").await;
    assert!(output.stdout == data, "what came back differs");
}

/// Both directions at once do not block each other.
#[tokio::test]
async fn directions_do_not_block_each_other() {
    let server = TestServer::start().await;
    let data = noise(SIZE);
    let output = server.run("cat", &data).await;
    assert!(output.stdout == data, "{} bytes came back, {}", output.stdout.len(), text(&output.stderr));
}

/// Files are copied with scp and sftp.
#[tokio::test]
async fn files_are_copied_by_every_client() {
    let server = TestServer::start().await;
    let data = noise(SIZE / 10);
    std::fs::write(server.path("from"), &data).unwrap();
    let (from, to) = (server.path("from").display().to_string(), server.path("to").display().to_string());
    for flags in [&[][..], &["-O"]] {
        for (source, target) in
            [(from.clone(), format!("ubuntu@127.0.0.1:{to}")), (format!("ubuntu@127.0.0.1:{from}"), to.clone())]
        {
            let _ = std::fs::remove_file(server.path("to"));
            let arguments: Vec<&str> = flags.iter().copied().chain(["-q", &source, &target]).collect();
            let output = finish(command("scp", server.options(), &arguments), b"").await;
            assert!(output.status.success(), "{flags:?} {}", text(&output.stderr));
            assert!(std::fs::read(server.path("to")).unwrap() == data, "{flags:?} {source} to {target}");
        }
    }
    let batch = format!("put {from} {to}.put\nrename {to}.put {to}.renamed\nls -l {to}.renamed\n");
    let arguments = ["-b", "-", "ubuntu@127.0.0.1"];
    let output = finish(command("sftp", server.options(), &arguments), batch.as_bytes()).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(server.path("to.renamed")).unwrap() == data);
}

/// A client that is faster than the target is slowed down.
#[tokio::test]
async fn fast_client_is_slowed_down() {
    let server = TestServer::start().await;
    let mut ssh = server.ssh(&["ubuntu@127.0.0.1", "echo ready; exec sleep 1000"]).spawn().unwrap();
    let mut ready = [0; 6];
    ssh.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    let stdin = ssh.stdin.as_mut().unwrap();
    let (piece, mut sent) = (vec![0; 64 << 10], 0);
    // Ends when nothing was accepted for a while: without flow control, all of this is accepted at once.
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(2), stdin.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < 64 << 20, "the server buffers too much");
    }
}

/// A target that is faster than the client is slowed down.
#[tokio::test]
async fn fast_target_is_slowed_down() {
    let server = TestServer::start().await;
    let mut ssh = server.ssh(&["ubuntu@127.0.0.1", "echo $$ >&2; exec cat /dev/zero"]).spawn().unwrap();
    let mut pid = String::new();
    while !pid.ends_with('\n') {
        pid.push(char::from(ssh.stderr.as_mut().unwrap().read_u8().await.unwrap()));
    }
    let written = || -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", pid.trim())).unwrap();
        io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
    };
    let (mut last, mut quiet) = (0, 0);
    until("the program stops writing", async || {
        let now = written();
        assert!(now < 64 << 20, "the server buffers too much");
        quiet = if now == last && now > 0 { quiet + 1 } else { 0 };
        last = now;
        (quiet == 25).then_some(())
    })
    .await;
    // It continues when the client reads.
    let mut some = vec![0; 16 << 20];
    ssh.stdout.as_mut().unwrap().read_exact(&mut some).await.unwrap();
    until("the program writes on", async || (written() > last).then_some(())).await;
}
