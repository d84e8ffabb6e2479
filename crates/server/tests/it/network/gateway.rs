//! The SSH gateway and the real `ssh`, with guests that say what they were asked.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tarn_control::SshEndpoint;
use tarn_control::operations::admin::Recorded;
use tarn_control::reconcilers::access_records;
use tarn_control::testing::Setup;
use tarn_link::{FromGuest, Program, Purpose, Reader, Reply, Writer, opening};
use tarn_server::serve_gateway;
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt;

use crate::support::harness::{World, usual};

/// Nothing here takes so long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// A guest that reports its instance and the command that it was asked to run.
async fn guest(instance: String, stream: tokio::io::DuplexStream) {
    let (reader, writer) = tokio::io::split(stream);
    let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
    let Ok(Purpose::Session(session)) = opening::accept(&mut reader, &mut writer).await else { return };
    let Program::Exec(line) = session.program else { return };
    writer.message(&Reply::Ready).await.unwrap();
    writer.data(format!("{instance} ran {}\n", String::from_utf8_lossy(&line)).as_bytes()).await.unwrap();
    if line.starts_with(b"wait") {
        // Until the gateway ends the stream.
        while let Ok(Some(_)) = reader.read().await {}
        return;
    }
    writer.message(&FromGuest::Exited { code: 3 }).await.unwrap();
}

struct GatewayFixture {
    world: World,
    port: u16,
    directory: TempDir,
}

impl GatewayFixture {
    /// An engine with a gateway, and two keys in a directory.
    async fn start() -> GatewayFixture {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ssh = Some(SshEndpoint { host: "127.0.0.1".into(), port });
        let dial = |id: &tarn_model::ids::InstanceId| -> Result<tarn_driver::GuestStream, tarn_driver::Error> {
            let (ours, theirs) = tokio::io::duplex(4096);
            tokio::spawn(guest(id.to_string(), theirs));
            Ok(Box::new(ours))
        };
        let world = World::with_setup(Setup { ssh, ..usual() }).await;
        world.driver.dial_guests(dial);
        tokio::spawn(serve_gateway(listener, world.control.clone(), std::future::pending()));
        let directory = TempDir::new().unwrap();
        for name in ["mine", "theirs", "stale"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(directory.path().join(name));
            assert!(keygen.status().unwrap().success());
        }
        // What a careless person may have: no checks, and the key of another engine at the same address.
        let stale = format!("[127.0.0.1]:{port} {}", read(&directory, "stale.pub"));
        std::fs::write(directory.path().join("known_hosts"), stale).unwrap();
        let known = directory.path().join("known_hosts");
        let config = format!("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile {}\n", known.display());
        std::fs::write(directory.path().join("config"), config).unwrap();
        GatewayFixture { world, port, directory }
    }

    /// Runs a command line that the engine gave, with more arguments at its end, as `tp ssh` does.
    async fn run(&self, line: &str, key: &str) -> Output {
        let mut command = self.command(line, key, "echo hello");
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// The command line that the engine gave, with more arguments at its end.
    fn command(&self, line: &str, key: &str, remote: &str) -> Command {
        let at = |name: &str| self.directory.path().join(name).display().to_string();
        let (config, key) = (at("config"), at(key));
        let options = format!(
            "-F {config} -i {key} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o ConnectTimeout=20"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {line} {options} {remote}")]);
        command
    }
}

fn read(directory: &TempDir, name: impl AsRef<Path>) -> String {
    std::fs::read_to_string(directory.path().join(name)).unwrap()
}

/// The SSH command of the engine logs in.
#[tokio::test(flavor = "multi_thread")]
async fn ssh_command_logs_in() {
    let fixture = GatewayFixture::start().await;
    let (world, ada) = (&fixture.world, fixture.world.user("ada@example.org", None).await);
    let key = read(&fixture.directory, "mine.pub");
    assert_eq!(world.post(&ada, "/user/ssh-key/add", json!({ "public_key": key })).await.status, 200);
    let cluster = world.cluster(&ada, "work").await;
    let info = world.get(&ada, &format!("/cluster/info/{cluster}")).await;
    let instance = info.body["cluster_info"]["instances"][0]["id"].as_str().unwrap().to_owned();
    let command = world.get(&ada, &format!("/ssh/{instance}?system=linux")).await;
    assert_eq!(command.body["message"], json!(null));
    assert_eq!(command.body["command"], info.body["cluster_info"]["instances"][0]["ssh_command"]);
    let command = command.text("command");
    assert!(command.ends_with("@127.0.0.1"), "nothing else may be reached from here: {command}");

    let output = fixture.run(&command, "mine").await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{instance} ran echo hello\n"));
    let by_name = command.replace(&format!("{instance}@"), "work@");
    assert_eq!(fixture.run(&by_name, "mine").await.status.code(), Some(3));
    let events = world.get(&world.admin, "/admin/event/list").await.body.to_string();
    assert!(events.contains("ssh.login"), "{events}");

    let output = fixture.run(&command, "theirs").await;
    assert_eq!((output.status.code(), output.stdout.len()), (Some(255), 0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Permission denied (publickey)"), "{output:?}");
}

/// A session of the real `ssh` ends when its key is removed, and an event says why.
#[tokio::test(flavor = "multi_thread")]
async fn open_session_ends_with_key() {
    let fixture = GatewayFixture::start().await;
    let (world, ada) = (&fixture.world, fixture.world.user("ada@example.org", None).await);
    let _watch = world.watch_access();
    let key = read(&fixture.directory, "mine.pub");
    let saved = world.post(&ada, "/user/ssh-key/add", json!({ "public_key": key })).await;
    let cluster = world.cluster(&ada, "work").await;
    let info = world.get(&ada, &format!("/cluster/info/{cluster}")).await;
    let line = info.body["cluster_info"]["instances"][0]["ssh_command"].as_str().unwrap().to_owned();
    let mut session = fixture.command(&line, "mine", "wait");
    session.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut session = tokio::process::Command::from(session).kill_on_drop(true).spawn().unwrap();
    let mut stdout = tokio::io::BufReader::new(session.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).await.unwrap();
    assert!(first.contains("ran wait"), "{first}");
    assert_eq!(session.try_wait().unwrap(), None, "it is open");
    let path = format!("/user/ssh-key/remove/{}", saved.text("key_id"));
    assert_eq!(world.delete(&ada, &path).await.status, 200);
    let ended = tokio::time::timeout(DEADLINE, session.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(ended.status.code(), Some(255));
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(words.contains("your access ended: the SSH key was removed"), "{words}");
    // The session does not wait for its event.
    let event = first_event(world, "ssh.end").await;
    assert_eq!(event.detail["reason"], "the SSH key was removed");
    assert_eq!(event.origin.address, Some(std::net::Ipv4Addr::LOCALHOST.into()));
    // A refused login is recorded with its address.
    assert_eq!(fixture.run(&line, "mine").await.status.code(), Some(255));
    let refused = first_event(world, "login.refused").await;
    assert_eq!((refused.object.as_str(), &refused.detail["count"]), ("ssh", &json!(1)));
    assert_eq!(refused.origin.address, Some(std::net::Ipv4Addr::LOCALHOST.into()));
}

/// Waits for an event.
async fn first_event(world: &World, verb: &str) -> Recorded {
    let waiting = async {
        loop {
            access_records::tick(&world.control).await.unwrap();
            if let Some(event) = world.events(verb).await.into_iter().next() {
                return event;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("there is no event {verb}"))
}

/// A wrong host key is not trusted, whatever the user configured.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_host_key_is_not_trusted() {
    let fixture = GatewayFixture::start().await;
    let (world, ada) = (&fixture.world, fixture.world.user("ada@example.org", None).await);
    let cluster = world.cluster(&ada, "work").await;
    let info = world.get(&ada, &format!("/cluster/info/{cluster}")).await;
    let command = info.body["cluster_info"]["instances"][0]["ssh_command"].as_str().unwrap().to_owned();
    assert!(command.ends_with("@127.0.0.1"), "nothing else may be reached from here: {command}");
    let mine = world.control.gateway_host_key().public_key;
    let stale = read(&fixture.directory, "stale.pub");
    let other = stale.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let output = fixture.run(&command.replace(&mine, &other), "mine").await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Host key verification failed"), "{output:?}");
    assert_eq!(read(&fixture.directory, "known_hosts").lines().count(), 1, "no file was touched");

    let instance = info.body["cluster_info"]["instances"][0]["id"].as_str().unwrap().to_owned();
    let windows = world.get(&ada, &format!("/ssh/{instance}?system=Windows")).await.text("command");
    let expected = format!("ssh -p {} -o StrictHostKeyChecking=accept-new {instance}@127.0.0.1", fixture.port);
    assert_eq!(windows, expected);
}
