//! Connections from and to the inside of an instance.

use tarn_link::{Endpoint, Frame, FromGuest, Purpose, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::fixture::{DEADLINE, Fixture, Link, OTHER_UID, eventually};

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.into(), port }
}

fn unix(path: impl AsRef<std::path::Path>) -> Endpoint {
    Endpoint::Unix { path: path.as_ref().to_str().unwrap().into() }
}

async fn everything((reader, _): &mut Link) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match tokio::time::timeout(DEADLINE, reader.read()).await.unwrap().unwrap() {
            Some(Frame::Data(data)) => all.extend(data),
            Some(Frame::Eof) | None => return all,
            other => panic!("{other:?}"),
        }
    }
}

/// Sends back what it received on one connection, after its end.
async fn echo(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    stream.write_all(&got).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// A connection carries data and both ends of file.
#[tokio::test]
async fn connection_carries_data_and_ends() {
    let fixture = Fixture::new();
    fixture.root.write("etc/hosts", "127.0.0.1 node-7\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "node-7"] {
        let (answer, mut link) = fixture.ask(Purpose::Connect(tcp(host, port))).await.unwrap();
        assert_eq!(answer, Reply::Ready);
        let answering = async { echo(listener.accept().await.unwrap().0).await };
        let data = vec![7; 3 << 20];
        let talking = async {
            link.1.data(&data).await.unwrap();
            link.1.eof().await.unwrap();
            everything(&mut link).await
        };
        let ((), got) = tokio::join!(answering, talking);
        assert!(got == data);
        assert_eq!(link.0.read().await.unwrap(), None);
    }
}

/// A connection that cannot be opened is refused.
#[tokio::test]
async fn failed_connection_is_refused() {
    let fixture = Fixture::new();
    // The port is bound without a listener, so that no other test can take it.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap().port();
    for endpoint in [tcp("127.0.0.1", nobody), tcp("", 1), unix("/no/such/socket"), unix(""), Endpoint::Agent] {
        let refused = fixture.ask(Purpose::Connect(endpoint.clone())).await.unwrap_err();
        assert!(refused.to_string().contains("could not be opened"), "{endpoint:?}: {refused}");
    }
}

/// Unix sockets are opened with the rights of the user.
#[tokio::test]
async fn unix_sockets_use_user_rights() {
    let fixture = Fixture::new();
    let path = fixture.root.home().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // A relative path starts at the home directory.
    for name in [path.to_str().unwrap(), "socket"] {
        let (_, mut link) = fixture.ask(Purpose::Connect(unix(name))).await.unwrap();
        let talking = async {
            link.1.data(b"hello").await.unwrap();
            link.1.eof().await.unwrap();
            everything(&mut link).await
        };
        let ((), got) = tokio::join!(async { echo(listener.accept().await.unwrap().0).await }, talking);
        assert_eq!(got, b"hello");
    }
    let Some(fixture) = Fixture::as_other_user() else { return };
    let roots = fixture.root.path().join("socket");
    let _listener = UnixListener::bind(&roots).unwrap();
    std::fs::set_permissions(&roots, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let refused = fixture.ask(Purpose::Connect(unix(&roots))).await.unwrap_err();
    assert!(refused.to_string().contains("Permission denied"), "{refused}");
}

async fn take_one(fixture: &Fixture, link: &mut Link) -> (Endpoint, Link) {
    let message = tokio::time::timeout(DEADLINE, link.0.read_message::<FromGuest>()).await.unwrap().unwrap().unwrap();
    let FromGuest::Incoming { id, from } = message else { panic!("{message:?}") };
    let (answer, taken) = fixture.ask(Purpose::Take { id }).await.unwrap();
    assert_eq!(answer, Reply::Ready);
    assert!(fixture.ask(Purpose::Take { id }).await.is_err(), "a connection is taken once");
    (from, taken)
}

/// A listener announces connections and ends with its stream.
#[tokio::test]
async fn listener_announces_connections() {
    let fixture = Fixture::new();
    let (answer, mut link) = fixture.ask(Purpose::Listen(tcp("0.0.0.0", 0))).await.unwrap();
    let Reply::Listening(Endpoint::Tcp { host, port }) = answer else { panic!("{answer:?}") };
    assert_eq!(host, "0.0.0.0");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (from, mut taken) = take_one(&fixture, &mut link).await;
    assert_eq!(from, tcp("127.0.0.1", stream.local_addr().unwrap().port()));
    stream.write_all(b"from inside").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(everything(&mut taken).await, b"from inside");
    taken.1.data(b"from outside").await.unwrap();
    taken.1.eof().await.unwrap();
    let mut got = String::new();
    stream.read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "from outside");
    drop(link);
    eventually("the port is free", || std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()).await;
}

/// A listener accepts connections from inside the instance only.
#[tokio::test]
async fn listener_is_loopback_only() {
    let fixture = Fixture::new();
    let (answer, _link) = fixture.ask(Purpose::Listen(tcp("*", 0))).await.unwrap();
    let Reply::Listening(Endpoint::Tcp { port, .. }) = answer else { panic!("{answer:?}") };
    // Another loopback address stands for any other address of the host.
    assert!(TcpStream::connect(("127.0.0.2", port)).await.is_err());
    for endpoint in [tcp("", 22), tcp("", 1023), tcp("127.0.0.1", port), Endpoint::Agent] {
        assert!(fixture.ask(Purpose::Listen(endpoint.clone())).await.is_err(), "{endpoint:?}");
    }
}

/// Unix listeners are created and removed as the user.
#[tokio::test]
async fn unix_listeners_use_user_rights() {
    let (fixture, uid) = match Fixture::as_other_user() {
        Some(fixture) => (fixture, OTHER_UID),
        None => (Fixture::new(), rustix::process::getuid().as_raw()),
    };
    let path = fixture.root.home().join("listening");
    let (answer, mut link) = fixture.ask(Purpose::Listen(unix(&path))).await.unwrap();
    assert_eq!(answer, Reply::Listening(unix(&path)));
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap()), uid);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let (_, mut taken) = take_one(&fixture, &mut link).await;
    stream.write_all(b"hello").await.unwrap();
    drop(stream);
    assert_eq!(everything(&mut taken).await, b"hello");
    assert!(fixture.ask(Purpose::Listen(unix(&path))).await.is_err(), "it is taken");
    drop(link);
    eventually("the socket is removed", || !path.exists()).await;
}

/// Connections above the limit wait in the kernel's backlog.
#[tokio::test]
async fn excess_connections_stay_in_backlog() {
    let fixture = Fixture::new();
    let (answer, mut link) = fixture.ask(Purpose::Listen(tcp("", 0))).await.unwrap();
    let Reply::Listening(Endpoint::Tcp { port, .. }) = answer else { panic!("{answer:?}") };
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let mut announced = Vec::new();
    for _ in 0..32 {
        announced.push(link.0.read_message::<FromGuest>().await.unwrap().unwrap());
    }
    // No connection was refused, and each free permit goes to the next one.
    for place in 0..8 {
        let FromGuest::Incoming { id, .. } = announced[place] else { panic!("{:?}", announced[place]) };
        let (answer, _taken) = fixture.ask(Purpose::Take { id }).await.unwrap();
        assert_eq!(answer, Reply::Ready);
        let next = tokio::time::timeout(DEADLINE, link.0.read_message::<FromGuest>()).await.unwrap();
        announced.push(next.unwrap().unwrap());
    }
    let (_, mut taken) = match announced.last() {
        Some(FromGuest::Incoming { id, .. }) => fixture.ask(Purpose::Take { id: *id }).await.unwrap(),
        other => panic!("{other:?}"),
    };
    taken.1.data(b"at last").await.unwrap();
    taken.1.eof().await.unwrap();
    let mut got = String::new();
    streams.last_mut().unwrap().read_to_string(&mut got).await.unwrap();
    assert_eq!(got, "at last");
}
