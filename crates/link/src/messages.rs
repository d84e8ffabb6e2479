//! The messages of a link.

use serde::{Deserialize, Serialize};

use crate::jobs::{JobOrder, KnownJob, OutputsOrder};

/// The purpose of a stream; the engine sends it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Configures keys and names, replacing the previous configuration. The stream ends after the reply.
    Configure(Box<Configuration>),
    /// Reads the health of the instance. The stream ends after the reply.
    Health,
    /// Ends every process of the instance, and then the guest. The reply comes first.
    Stop,
    /// Runs a program. Data frames are its input and output; [`ToGuest`] and [`FromGuest`] carry everything else.
    Session(Box<Session>),
    /// Opens a connection from inside the instance. Data flows both ways until each side has sent its end.
    Connect(Endpoint),
    /// Listens inside the instance until the stream ends; [`FromGuest::Incoming`] announces each connection.
    Listen(Endpoint),
    /// Takes over an announced connection. Data flows as for [`Purpose::Connect`].
    Take { id: u64 },
    /// Runs an attempt of a job, unless the guest knows this attempt already. The guest replies [`Reply::Ready`] or
    /// [`Reply::SendFiles`]; after that the stream continues like [`Purpose::FollowJob`] from the first byte.
    RunJob(Box<JobOrder>),
    /// Follows an attempt of a job: data frames are its output from `offset` on, and [`crate::FromJob`] and
    /// [`crate::ToJob`] carry everything else. The reply is [`Reply::NoSuchJob`] if the guest does not know the
    /// attempt.
    FollowJob {
        /// The job.
        job: String,
        /// Which attempt.
        attempt: u32,
        /// How many bytes of its output the engine has already.
        offset: u64,
    },
    /// Stops an attempt with TERM, and with KILL after the grace period. The reply comes at once; followers of the
    /// attempt learn when it has ended. An attempt that has ended or is unknown is left alone.
    StopJob {
        /// The job.
        job: String,
        /// Which attempt.
        attempt: u32,
        grace_seconds: u32,
    },
    /// Forgets a job with its directory, its output and all attempts; attempts that still run are killed first. The
    /// reply comes when nothing of the job is left.
    ForgetJob {
        /// The job.
        job: String,
    },
    /// Lists the jobs that the guest knows. The reply is [`Reply::Jobs`], and the stream ends after it.
    ListJobs,
    /// Reads the files in the directory of a job. [`Reply::Ready`] is followed by [`crate::FromOutputs`] messages. If
    /// contents are wanted, the data of each file and an end of data follow its message.
    Outputs(Box<OutputsOrder>),
}

/// The guest's reply, its first message on a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The guest has done what was asked, or is ready to start.
    Ready,
    /// The guest listens at this endpoint: the requested one, with the chosen port if the request had none.
    Listening(Endpoint),
    Health(Box<Health>),
    /// The guest needs the files of the job: a gzip-compressed tar archive as data frames, followed by an end of data.
    SendFiles,
    /// The guest does not know the job, or not this attempt.
    NoSuchJob,
    Jobs(Vec<KnownJob>),
    /// The guest cannot do what was asked.
    Refused {
        /// The reason, for a person to read.
        reason: String,
    },
}

/// Who may log in to an instance, and the names of its peers.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The public keys that may log in, one OpenSSH line each.
    pub public_keys: Vec<String>,
    /// The names and addresses of all nodes of the cluster.
    pub hosts: Vec<(String, String)>,
    /// The private host key of this node, in OpenSSH format.
    pub host_key: String,
    /// The private key with which the nodes of the cluster log in to each other, in OpenSSH format.
    pub peer_key: String,
    /// The public half of the peer key, as one OpenSSH line.
    pub peer_public_key: String,
    /// Lines for `known_hosts`: the host keys of all nodes.
    pub known_hosts: Vec<String>,
    /// The volumes that are linked into the home directory: their names and mount points.
    #[serde(default)]
    pub volumes: Vec<(String, String)>,
}

/// Keeps secrets out of logs.
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
    pub version: String,
    pub uptime_seconds: u64,
    /// The load averages over 1, 5 and 15 minutes, in thousandths.
    pub load_milli: [u32; 3],
    pub processes: u32,
    pub sessions: u32,
}

/// A program to run in an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub program: Program,
    pub pty: Option<Pty>,
    /// Environment variables that the client asks for.
    pub environment: Vec<(String, String)>,
    /// Whether the client offers its authentication agent; the guest announces each connection to it.
    pub agent: bool,
    /// For `SSH_CONNECTION`: the address and port of the client, and the address and port that it connected to.
    pub connection: Option<(String, u16, String, u16)>,
}

/// The program of a session.
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

/// The terminal of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pty {
    /// The value of `TERM`.
    pub term: String,
    pub window: Window,
    /// Its modes: pairs of SSH opcode and value (RFC 4254, section 8).
    pub modes: Vec<(u8, u32)>,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub columns: u16,
    pub rows: u16,
    pub width: u16,
    pub height: u16,
}

/// Where a forwarded connection goes to or comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// A host, by name or address, and a port.
    Tcp {
        host: String,
        /// The port; with 0 the listener chooses one.
        port: u16,
    },
    /// A socket in the filesystem.
    Unix { path: String },
    /// The client's authentication agent.
    Agent,
}

/// What the engine sends during a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuest {
    Resize(Window),
    /// Sends the program a signal, by its SSH name (without SIG).
    Signal(String),
}

/// What the guest sends during a session, or while it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuest {
    /// A program connected to the listener of the guest. The engine takes the connection over on a separate stream,
    /// within a few seconds.
    Incoming {
        /// The number for [`Purpose::Take`].
        id: u64,
        /// The peer of the connection; [`Endpoint::Agent`] for a connection to the agent.
        from: Endpoint,
    },
    /// The program has exited, and all of its output has been sent. The last message of a session.
    Exited { code: u32 },
    /// A signal ended the program. The last message of a session.
    Killed {
        /// The SSH name of the signal (without SIG).
        signal: String,
        /// Whether the program left a core file.
        core: bool,
    },
}

/// How the programs of a container image run. The driver passes it to the guest as JSON in the environment variable
/// [`Image::VARIABLE`]; an instance of the built-in image has no such variable. Its contents come from the author of
/// the image, so the guest trusts none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The environment variables, in the order of the image.
    pub environment: Vec<(String, String)>,
    /// The user as the image names it: `app`, `1000`, `1000:1000`, `app:staff`. `None` means `root`.
    pub user: Option<String>,
    /// The working directory.
    pub directory: Option<String>,
}

impl Image {
    /// The environment variable of the guest that holds the image settings.
    pub const VARIABLE: &'static str = "TARN_IMAGE";
}
