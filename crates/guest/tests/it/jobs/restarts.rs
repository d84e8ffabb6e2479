//! What is left of a job when its node stops or dies.

use std::path::Path;
use std::sync::Arc;

use tarn_link::{Frame, JobEnd, JobOrder, Purpose, Reply};

use super::{done, finish, following, order, processes, read_text};
use crate::fixture::{Fixture, Root, eventually, exec, is_root, unique_uid};
use crate::init::Instance;

/// Counts forever, and stores each number after printing it.
const COUNTING: &str = "trap '' TERM; while :; do I=$((I+1)); echo $I; echo $I > last; done";

fn last(root: &Path, order: &JobOrder) -> u64 {
    let path = root.join("home/tester/jobs").join(&order.job).join("last");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A job on a node that stops is lost, but its output is kept.
#[tokio::test]
async fn stopped_node_keeps_output() {
    if !is_root() {
        return;
    }
    let root = Arc::new(Root::new(0, 0));
    let mut instance = Instance::of(root.clone()).await;
    let (counting, polite) = (
        order(&[COUNTING]),
        order(&["trap 'kill $! 2>/dev/null; echo saved; exit 0' TERM; echo on; sleep 1000 & wait"]),
    );
    let (_, first) = instance.ask(Purpose::RunJob(Box::new(counting.clone()))).await;
    let (_, mut second) = instance.ask(Purpose::RunJob(Box::new(polite.clone()))).await;
    read_text(&mut second, "on").await;
    eventually("it counts", || last(root.path(), &counting) > 1000).await;
    drop((first, second));
    instance.ask(Purpose::Stop).await;
    instance.ends_in_order().await;
    drop(instance);
    let instance = Instance::of(root.clone()).await;
    assert_counted(&instance, &counting, last(root.path(), &counting)).await;
    let (_, mut link) = instance.ask(following(&polite, 0)).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.text(), "on\nsaved\n");
    seen.assert_end(JobEnd::Lost);
}

/// A guest starts whatever it finds among its stored jobs.
#[tokio::test]
async fn invalid_job_files_do_not_stop_a_guest() {
    let root = Root::new(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let jobs = root.path().join("var/lib/tarn/jobs");
    for directory in ["j-aaaaaaaaaaaa/1/log", "j-bbbbbbbbbbbb/1", "j-bbbbbbbbbbbb/2", "elsewhere"] {
        std::fs::create_dir_all(jobs.join(directory)).unwrap();
    }
    for file in
        ["j-cccccccccccc", "file", "j-aaaaaaaaaaaa/1/order.json", "j-aaaaaaaaaaaa/2", "j-bbbbbbbbbbbb/2/order.json"]
    {
        std::fs::write(jobs.join(file), "?").unwrap();
    }
    std::fs::write(jobs.join("j-bbbbbbbbbbbb/1/order.json"), "").unwrap();
    let fixture = Fixture::of(root);
    let Reply::Jobs(known) = fixture.ask(Purpose::ListJobs).await.unwrap().0 else { panic!("no list") };
    let known: Vec<_> = known.iter().map(|job| (job.job.as_str(), job.attempts.as_slice(), job.running)).collect();
    assert_eq!(known, [("j-aaaaaaaaaaaa", &[][..], false), ("j-bbbbbbbbbbbb", &[2][..], false)]);
    for job in ["j-aaaaaaaaaaaa", "j-bbbbbbbbbbbb", "j-cccccccccccc"] {
        assert_eq!(fixture.ask(Purpose::ForgetJob { job: job.into() }).await.unwrap().0, Reply::Ready, "{job}");
    }
    assert_eq!(std::fs::read_dir(&jobs).unwrap().count(), 2, "what is no job's stays");
}

/// A job on a node that dies is lost.
#[tokio::test]
async fn killed_node_loses_its_job() {
    if !is_root() {
        return;
    }
    let root = Arc::new(Root::new(0, 0));
    let instance = Instance::of(root.clone()).await;
    let counting = order(&[COUNTING]);
    let (_, link) = instance.ask(Purpose::RunJob(Box::new(counting.clone()))).await;
    eventually("it counts", || last(root.path(), &counting) > 100).await;
    drop((link, instance));
    let instance = Instance::of(root.clone()).await;
    assert_counted(&instance, &counting, 0).await;
}

/// A fork bomb on a node is killed, and other processes continue.
#[tokio::test]
async fn fork_bomb_ends_and_others_continue() {
    if !is_root() {
        return;
    }
    let user = unique_uid();
    let root = Arc::new(Root::new(user, user));
    let instance = Instance::of(root.clone()).await;
    // Each process starts two more in new groups and ends, so that they are hard to find; only the first continues.
    let bomb = r#"exec perl -e '$SIG{CHLD} = "IGNORE"; my $first = $$;
        BORN: { do { for (1, 2) { if (defined(my $pid = fork)) { next if $pid; setpgrp; redo BORN } } } while $$ == $first }'"#;
    let mine = order(&["ulimit -u 300; ulimit -v 1000000", "echo on", bomb]);
    let (_, mut session) = instance.ask(Purpose::Session(Box::new(exec("echo on; cat")))).await;
    let (_, mut link) = instance.ask(Purpose::RunJob(Box::new(mine.clone()))).await;
    read_text(&mut link, "on").await;
    // Most processes end before they are seen, above all on a busy host; the first one never ends by itself.
    eventually("it has multiplied", || processes(&mine).len() > 2).await;
    let stopping = Purpose::StopJob { job: mine.job.clone(), attempt: 1, grace_seconds: 0 };
    assert_eq!(instance.ask(stopping).await.0, Reply::Ready);
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
    session.1.data(b"still here\n").await.unwrap();
    session.1.eof().await.unwrap();
    let mut said = Vec::new();
    while let Frame::Data(data) = session.0.read().await.unwrap().unwrap() {
        said.extend(data);
    }
    assert_eq!(String::from_utf8_lossy(&said), "on\nstill here\n");
}

/// Asserts that the log has every number from 1 up to at least `least`.
async fn assert_counted(instance: &Instance, counting: &JobOrder, least: u64) {
    let Reply::Jobs(known) = instance.ask(Purpose::ListJobs).await.0 else { panic!("no list") };
    assert!(known.iter().any(|job| job.job == counting.job && job.attempts == [1] && !job.running), "{known:?}");
    let (_, mut link) = instance.ask(following(counting, 0)).await;
    let seen = finish(&mut link).await;
    seen.assert_end(JobEnd::Lost);
    let text = seen.text();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let mut count = 0;
    for line in whole.lines() {
        count += 1;
        assert_eq!(line.parse(), Ok(count), "the log has a gap");
    }
    assert!(count >= least, "{count} of {least} lines");
    done(link).await;
}
