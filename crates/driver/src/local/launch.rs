//! The dialogue with the helper process that puts an instance together.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::engine::{Engine, failed};
use super::helper::order::{BEGIN, Order, Report};
use super::processes::Process;
use super::record::Record;
use super::{cgroups, cpus};
use crate::Error;

/// How long the helper may take; it needs a twentieth of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// No report is longer.
const MAX_REPORT: u64 = 64 << 10;

/// Processes and threads that every instance may have, and those that each CPU adds.
const PIDS: (i64, i64) = (4_096, 1_024);

const FAILED: &str = "the instance could not be started";

/// Starts an instance whose directories, bridge and record exist, and records its process.
pub(super) async fn launch(engine: &Engine, record: Record) -> Result<Record, Error> {
    let _turn = engine.helpers.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    let mut helper = Helper::spawn(engine).map_err(|error| failed(FAILED, &error))?;
    let done = tokio::time::timeout(PATIENCE, helper.talk(engine, record)).await;
    let done = done.unwrap_or_else(|_| Err(failed(FAILED, &io::Error::other("the helper took too long"))));
    helper.end(done.is_ok()).await;
    done
}

struct Helper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Helper {
    fn spawn(engine: &Engine) -> io::Result<Self> {
        let (program, arguments) = engine.helper.split_first().ok_or_else(|| io::Error::other("there is no helper"))?;
        let mut command = Command::new(program);
        // What the engine was told by its environment, perhaps secrets, is not for the helper.
        command.args(arguments).env_clear().current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the helper has no input or output"));
        };
        Ok(Helper { child, input, output: BufReader::new(output) })
    }

    async fn talk(&mut self, engine: &Engine, mut record: Record) -> Result<Record, Error> {
        let lost = |error: io::Error| failed(FAILED, &error);
        let order = serde_json::to_string(&order(engine, &record)).map_err(|error| lost(error.into()))?;
        self.say(&order).await.map_err(lost)?;
        let Report::Namespaces { pid: keeper } = self.hear().await.map_err(lost)? else {
            return Err(lost(io::Error::other("the helper made no namespaces")));
        };
        // The network is made and connected while the helper goes on. The record keeps others from removing it again.
        let (connected, created) = tokio::join!(connect(engine, &record, keeper), self.hear());
        connected?;
        let Report::Created { pid } = created.map_err(lost)? else {
            return Err(lost(io::Error::other("the helper created nothing")));
        };
        let process = Process::find(pid).map_err(lost)?;
        record.process = Some(process.ok_or_else(|| lost(io::Error::other("the instance ended at once")))?);
        engine.save(&record).await?;
        self.say(BEGIN).await.map_err(lost)?;
        match self.hear().await.map_err(lost)? {
            Report::Begun => {
                cgroups::limit_cpu(&engine.places.cgroup(&record.id), record.cpu_milli).map_err(lost)?;
                Ok(record)
            }
            _ => Err(lost(io::Error::other("the helper did not begin"))),
        }
    }

    async fn say(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await
    }

    async fn hear(&mut self) -> io::Result<Report> {
        let mut line = String::new();
        (&mut self.output).take(MAX_REPORT).read_line(&mut line).await?;
        match serde_json::from_str(&line)? {
            Report::Failed { reason } if reason.contains("No space left") => {
                Err(io::Error::new(io::ErrorKind::StorageFull, reason))
            }
            Report::Failed { reason } if is_missing(&reason) => Err(io::Error::new(io::ErrorKind::Unsupported, reason)),
            Report::Failed { reason } => Err(io::Error::other(reason)),
            report => Ok(report),
        }
    }

    /// A helper that has done its work ends by itself; any other is ended.
    async fn end(mut self, done: bool) {
        drop(self.input);
        if !done {
            let _gone = self.child.start_kill();
        }
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "the helper could not be waited for");
        }
    }
}

/// Whether the kernel said that it does not know such a thing (`ENOSYS`, `EOPNOTSUPP`) or not in this way (`EINVAL`).
fn is_missing(reason: &str) -> bool {
    ["(os error 38)", "(os error 95)", "(os error 22)"].iter().any(|code| reason.contains(code))
}

async fn connect(engine: &Engine, record: &Record, keeper: u32) -> Result<(), Error> {
    engine.network.ensure_base().await?;
    engine.network.ensure_bridge(record.slot).await?;
    engine.network.attach(record.slot, record.address, keeper).await
}

fn order(engine: &Engine, record: &Record) -> Order {
    let places = &engine.places;
    Order {
        id: record.id.to_string(),
        hostname: record.name.clone(),
        image: record.image.clone(),
        disk: places.disk(&record.id),
        run: places.run_of(&record.id),
        guest: engine.guest.clone(),
        id_base: record.id_base,
        cgroup: places.cgroup(&record.id).display().to_string(),
        cpus: cpus::list(&record.cpus),
        memory_bytes: record.memory_bytes,
        pids: PIDS.0 + PIDS.1 * i64::try_from(record.cpus.len()).unwrap_or(1),
    }
}
