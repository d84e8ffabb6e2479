//! What is said over a link.

use serde::{Deserialize, Serialize};

use crate::jobs::{JobOrder, KnownJob, OutputsOrder};

/// What a stream is for; the engine says it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Gives the guest its keys and names, replacing what it had. The answer is the end of the stream.
    Configure(Box<Configuration>),
    /// Asks how the instance is. The answer is the end of the stream.
    Health,
    /// Asks the guest to end every process and then itself. The answer comes before it does.
    Stop,
    /// Runs a program. Data is its input and output, [`ToGuest`] and [`FromGuest`] what else happens to it.
    Session(Box<Session>),
    /// Opens a connection from inside the instance. Data goes both ways until each side has sent its end.
    Connect(Endpoint),
    /// Listens inside the instance until the stream ends; who comes is announced by [`FromGuest::Incoming`].
    Listen(Endpoint),
    /// Takes over a connection that was announced. Data as for [`Purpose::Connect`].
    Take {
        /// The number of the announcement.
        id: u64,
    },
    /// Runs a job, unless this attempt of it is known already. The guest answers [`Answer::Ready`] or [`Answer::SendFiles`];
    /// after that the stream goes on as for [`Purpose::FollowJob`] from the first byte.
    RunJob(Box<JobOrder>),
    /// Follows an attempt of a job: data is what it wrote, from `offset` on, and [`crate::FromJob`] and [`crate::ToJob`] say what
    /// else happens. Refused with [`Answer::NoSuchJob`] when the guest does not know it.
    FollowJob {
        /// The job.
        job: String,
        /// Which attempt.
        attempt: u32,
        /// How many bytes of its output are known.
        offset: u64,
    },
    /// Asks an attempt to end: a TERM, and after the grace a KILL. The answer comes at once; that it has ended is told to
    /// whoever follows it. One that has ended or is not known is left alone.
    StopJob {
        /// The job.
        job: String,
        /// Which attempt.
        attempt: u32,
        /// How long it has to end by itself.
        grace_seconds: u32,
    },
    /// Forgets a job with its directory, its output and all attempts; what still runs of it is killed first. The answer
    /// comes when nothing of it is left.
    ForgetJob {
        /// The job.
        job: String,
    },
    /// Asks which jobs the guest knows. The answer, [`Answer::Jobs`], is the end of the stream.
    ListJobs,
    /// Asks for the files in the directory of a job. After [`Answer::Ready`] come [`crate::FromOutputs`] messages, each file's
    /// data after its own, with an end of data after each, if that was asked for.
    Outputs(Box<OutputsOrder>),
}

/// The guest's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done, or may begin.
    Ready,
    /// It listens here: the endpoint that was asked for, with the port that was chosen if none was named.
    Listening(Endpoint),
    /// How the instance is.
    Health(Box<Health>),
    /// The files of the job are wanted: a tar archive compressed by gzip, as data, and its end.
    SendFiles,
    /// There is no such job here, or no such attempt of it.
    NoSuchJob,
    /// The jobs that are known.
    Jobs(Vec<KnownJob>),
    /// It cannot be done.
    Refused {
        /// Why, for a person.
        reason: String,
    },
}

/// How people and peers get into an instance, and what it calls its peers.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Public keys that may log in, one OpenSSH line each.
    pub public_keys: Vec<String>,
    /// Names and addresses of all nodes of the cluster.
    pub hosts: Vec<(String, String)>,
    /// The private host key of this node, in OpenSSH's format.
    pub host_key: String,
    /// The private key with which nodes of the cluster log in to each other, in OpenSSH's format.
    pub peer_key: String,
    /// The public half of it, as one OpenSSH line.
    pub peer_public_key: String,
    /// Lines for `known_hosts`: the host keys of all nodes.
    pub known_hosts: Vec<String>,
    /// The volumes that the user finds in his home directory: their names and where they are mounted.
    #[serde(default)]
    pub volumes: Vec<(String, String)>,
}

/// Secrets stay out of logs.
impl std::fmt::Debug for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Configuration")
            .field("public_keys", &self.public_keys.len())
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// How an instance is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The version of the guest.
    pub version: String,
    /// Seconds since the guest began.
    pub uptime_seconds: u64,
    /// The load averages over 1, 5 and 15 minutes, in thousandths.
    pub load_milli: [u32; 3],
    /// How many processes there are.
    pub processes: u32,
    /// How many sessions are open.
    pub sessions: u32,
}

/// A program to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// What to run.
    pub program: Program,
    /// The terminal it gets, if any.
    pub pty: Option<Pty>,
    /// Environment variables that the client wants set.
    pub environment: Vec<(String, String)>,
    /// Whether the client's authentication agent is offered; the guest announces who asks for it.
    pub agent: bool,
    /// Where the client comes from, for `SSH_CONNECTION`: its address and port, and those it came to.
    pub connection: Option<(String, u16, String, u16)>,
}

/// What a session runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// The user's login shell.
    #[default]
    Shell,
    /// A command line, run by the user's shell.
    Exec(Vec<u8>),
    /// The file transfer service.
    Sftp,
}

/// A terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pty {
    /// The value of `TERM`.
    pub term: String,
    /// Its size.
    pub window: Window,
    /// Its modes: pairs of SSH's opcode and value (RFC 4254, section 8).
    pub modes: Vec<(u8, u32)>,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
    /// Pixels across.
    pub width: u16,
    /// Pixels down.
    pub height: u16,
}

/// Where a forwarded connection goes to, or comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// A host, by name or address, and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port; 0 lets the listener choose.
        port: u16,
    },
    /// A socket in the filesystem.
    Unix {
        /// Its path.
        path: String,
    },
    /// The client's authentication agent.
    Agent,
}

/// What the engine says during a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuest {
    /// The window has a new size.
    Resize(Window),
    /// The program gets a signal, by SSH's name of it (without SIG).
    Signal(String),
}

/// What the guest says during a session, or while it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuest {
    /// Somebody connected to what the guest listens on. The engine takes the connection on a stream of its own, within
    /// a few seconds.
    Incoming {
        /// The number to take it by.
        id: u64,
        /// Who it is; for an agent, [`Endpoint::Agent`].
        from: Endpoint,
    },
    /// The program has ended; all of its output has been sent before this. The last message of a session.
    Exited {
        /// Its exit code.
        code: u32,
    },
    /// The program was ended by a signal. The last message of a session.
    Killed {
        /// SSH's name of the signal (without SIG).
        signal: String,
        /// Whether it left a core file.
        core: bool,
    },
}
