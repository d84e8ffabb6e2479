//! Jobs: how they end, what is kept of them, and what happens when a process dies.

mod archives;
mod commands;
mod exits;
mod logs;
mod outputs;
mod restarts;

use std::sync::atomic::{AtomicU32, Ordering};

use tarn_link::opening::Opened;
use tarn_link::{Frame, FromJob, JobEnd, JobOrder, Purpose, Reply, Stream, ToJob};
use tokio::time::timeout;

use crate::fixture::{DEADLINE, Fixture, Link, eventually};

/// An ordinary order of commands, with a job id that no other test on this host uses.
pub(crate) fn order(commands: &[&str]) -> JobOrder {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    JobOrder {
        job: format!("j-{:07x}{count:05x}", std::process::id()),
        attempt: 1,
        commands: commands.iter().map(|command| (*command).into()).collect(),
        environment: Vec::new(),
        hosts: vec!["node-0".into()],
        venv: false,
        timeout_seconds: None,
        grace_seconds: 10,
        has_files: false,
    }
}

/// What a follower has received of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) output: Vec<u8>,
    pub(crate) end: Option<FromJob>,
}

impl Seen {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    #[track_caller]
    pub(crate) fn assert_end(&self, end: JobEnd) {
        assert_eq!(self.end, Some(FromJob::Ended(end)), "{:.2000}", self.text());
    }
}

/// Starts a job that has no files.
pub(crate) async fn start(fixture: &Fixture, order: &JobOrder) -> Link {
    let (answer, link) = fixture.ask(Purpose::RunJob(Box::new(order.clone()))).await.unwrap();
    assert_eq!(answer, Reply::Ready);
    link
}

/// Reads a stream until a condition holds, or the attempt has ended.
pub(crate) async fn read_until<S: Stream>(link: &mut Opened<S>, is_enough: impl Fn(&Seen) -> bool) -> Seen {
    let mut seen = Seen::default();
    let reading = async {
        while seen.end.is_none() && !is_enough(&seen) {
            match link.0.read().await.unwrap().expect("the stream goes on") {
                Frame::Data(data) => seen.output.extend(data),
                Frame::Message(message) => match Frame::parse(&message).unwrap() {
                    FromJob::Started => assert!(seen.output.is_empty(), "the start is told before any data"),
                    end => seen.end = Some(end),
                },
                other => panic!("{other:?}"),
            }
        }
    };
    let in_time = timeout(DEADLINE * 2, reading).await;
    assert!(in_time.is_ok(), "{} bytes: {:.1000}", seen.output.len(), seen.text());
    seen
}

/// Reads until the output contains a text.
pub(crate) async fn read_text<S: Stream>(link: &mut Opened<S>, text: &str) -> String {
    let seen = read_until(link, |seen| seen.text().contains(text)).await;
    assert_eq!(seen.end, None, "{}", seen.text());
    seen.text()
}

/// Reads an attempt to its end, without confirming it.
pub(crate) async fn finish<S: Stream>(link: &mut Opened<S>) -> Seen {
    read_until(link, |_| false).await
}

/// Confirms the end of an attempt, and waits until the guest has forgotten it.
pub(crate) async fn done<S: Stream>(mut link: Opened<S>) {
    link.1.message(&ToJob::Done).await.unwrap();
    let end = timeout(DEADLINE, link.0.read()).await.expect("the stream ends").unwrap();
    assert_eq!(end, None);
}

/// Runs commands to their end, and confirms it.
pub(crate) async fn run(fixture: &Fixture, order: &JobOrder) -> Seen {
    let mut link = start(fixture, order).await;
    let seen = finish(&mut link).await;
    done(link).await;
    seen
}

/// Returns the purpose that follows a job from an offset.
pub(crate) fn following(order: &JobOrder, offset: u64) -> Purpose {
    Purpose::FollowJob { job: order.job.clone(), attempt: order.attempt, offset }
}

/// Follows an attempt from an offset.
pub(crate) async fn follow(fixture: &Fixture, order: &JobOrder, offset: u64) -> Link {
    let (answer, link) = fixture.ask(following(order, offset)).await.unwrap();
    assert_eq!(answer, Reply::Ready);
    link
}

/// Asks an attempt to end.
pub(crate) async fn stop(fixture: &Fixture, order: &JobOrder, grace_seconds: u32) {
    let purpose = Purpose::StopJob { job: order.job.clone(), attempt: order.attempt, grace_seconds };
    assert_eq!(fixture.ask(purpose).await.unwrap().0, Reply::Ready);
}

/// Returns the living processes of a job.
pub(crate) fn processes(order: &JobOrder) -> Vec<String> {
    let mark = format!("TP_JOB_ID={}", order.job).into_bytes();
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_of_job = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark)
    };
    pids.filter(is_of_job).collect()
}

/// Waits until nothing of a job runs.
pub(crate) async fn is_gone(order: &JobOrder) {
    eventually("nothing of the job is left", || processes(order).is_empty()).await;
}
