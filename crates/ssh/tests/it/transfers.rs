//! Much data, both ways, and never more in memory than the limits allow.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::front::{Front, command, finish, noise, text, until};

const SIZE: usize = 50_000_000;

#[tokio::test]
async fn data_is_the_same_at_the_other_end() {
    let front = Front::start().await;
    let data = noise(SIZE);
    let file = front.path("uploaded");
    let output = front.run(&format!("cat > {}", file.display()), &data).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(&file).unwrap() == data, "what arrived differs");
    let output = front.run(&format!("cat {}", file.display()), b"").await;
    assert!(output.stdout == data, "what came back differs");
}

#[tokio::test]
async fn both_directions_at_once_do_not_stop_each_other() {
    let front = Front::start().await;
    let data = noise(SIZE);
    let output = front.run("cat", &data).await;
    assert!(output.stdout == data, "{} bytes came back, {}", output.stdout.len(), text(&output.stderr));
}

#[tokio::test]
async fn files_are_copied_with_every_program() {
    let front = Front::start().await;
    let data = noise(SIZE / 10);
    std::fs::write(front.path("from"), &data).unwrap();
    let (from, to) = (front.path("from").display().to_string(), front.path("to").display().to_string());
    for flags in [&[][..], &["-O"]] {
        for (source, target) in
            [(from.clone(), format!("ubuntu@127.0.0.1:{to}")), (format!("ubuntu@127.0.0.1:{from}"), to.clone())]
        {
            let _ = std::fs::remove_file(front.path("to"));
            let arguments: Vec<&str> = flags.iter().copied().chain(["-q", &source, &target]).collect();
            let output = finish(command("scp", front.options(), &arguments), b"").await;
            assert!(output.status.success(), "{flags:?} {}", text(&output.stderr));
            assert!(std::fs::read(front.path("to")).unwrap() == data, "{flags:?} {source} to {target}");
        }
    }
    let batch = format!("put {from} {to}.put\nrename {to}.put {to}.renamed\nls -l {to}.renamed\n");
    let arguments = ["-b", "-", "ubuntu@127.0.0.1"];
    let output = finish(command("sftp", front.options(), &arguments), batch.as_bytes()).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(std::fs::read(front.path("to.renamed")).unwrap() == data);
}

#[tokio::test]
async fn a_client_that_is_faster_than_the_machine_waits() {
    let front = Front::start().await;
    let mut ssh = front.ssh(&["ubuntu@127.0.0.1", "echo ready; exec sleep 1000"]).spawn().unwrap();
    let mut ready = [0; 6];
    ssh.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    let stdin = ssh.stdin.as_mut().unwrap();
    let (piece, mut sent) = (vec![0; 64 << 10], 0);
    // It is over when nothing was taken for a while: a client that is not held back takes all of this at once.
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(2), stdin.write(&piece)).await {
        sent += written.unwrap();
        assert!(sent < 64 << 20, "the front takes more than anybody reads");
    }
}

#[tokio::test]
async fn a_machine_that_is_faster_than_the_client_waits() {
    let front = Front::start().await;
    let mut ssh = front.ssh(&["ubuntu@127.0.0.1", "echo $$ >&2; exec cat /dev/zero"]).spawn().unwrap();
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
        assert!(now < 64 << 20, "the front takes more than anybody reads");
        quiet = if now == last && now > 0 { quiet + 1 } else { 0 };
        last = now;
        (quiet == 25).then_some(())
    })
    .await;
    // And it goes on when somebody reads.
    let mut some = vec![0; 16 << 20];
    ssh.stdout.as_mut().unwrap().read_exact(&mut some).await.unwrap();
    until("the program writes on", async || (written() > last).then_some(())).await;
}
