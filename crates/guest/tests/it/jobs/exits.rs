//! How attempts end, and that nothing is left of them.

use tarn_link::{FromJob, JobEnd, Purpose, Reply};

use super::{done, finish, is_gone, order, processes, read_text, run, start, stop};
use crate::fixture::{DEADLINE, Fixture, Root, eventually, is_root, unique_uid};

/// A job reports its output and its exit code.
#[tokio::test]
async fn job_reports_output_and_exit_code() {
    let fixture = Fixture::new();
    let seen = run(&fixture, &order(&["echo hi"])).await;
    assert_eq!(seen.output, b"hi\n");
    seen.assert_end(JobEnd::Exited { code: 0 });
    let seen = run(&fixture, &order(&["echo one", "(exit 7)", "echo never"])).await;
    assert_eq!(seen.output, b"one\n");
    seen.assert_end(JobEnd::Exited { code: 7 });
    run(&fixture, &order(&["ulimit -c 0; kill -SEGV $$"])).await.assert_end(JobEnd::Killed { signal: 11 });
    run(&fixture, &order(&["ulimit -c 0; sh -c 'kill -KILL $$'"])).await.assert_end(JobEnd::Exited { code: 137 });
}

/// Background processes end with the commands.
#[tokio::test]
async fn leftover_processes_end_with_the_job() {
    let Some(fixture) = Fixture::as_other_user() else { return };
    let mine = order(&[
        "(setsid sleep 1000 >/dev/null 2>&1 &)",
        "sleep 1000 & disown",
        "setsid sh -c 'trap \"\" TERM HUP; (sleep 1000 &) ; sleep 1000' & sleep 0.1; echo end",
    ]);
    let mut link = start(&fixture, &mine).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.output, b"end\n");
    seen.assert_end(JobEnd::Exited { code: 0 });
    assert!(processes(&mine).is_empty(), "an attempt has ended when nothing is left of it");
    done(link).await;
}

/// A stopped job may clean up before it ends.
#[tokio::test]
async fn stopped_job_may_clean_up() {
    let fixture = Fixture::new();
    let mine = order(&["trap 'echo saving; exit 0' TERM; sleep 1000 & echo on; wait"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    stop(&fixture, &mine, 30).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.text(), "saving\n");
    seen.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
    stop(&fixture, &mine, 0).await;
    done(link).await;
}

/// A job that ignores TERM is killed after the grace period.
#[tokio::test]
async fn stubborn_job_is_killed_after_grace() {
    let fixture = Fixture::new();
    let mine = order(&[
        "trap '' TERM",
        "(trap '' TERM; while :; do sleep 0.05; done) & echo on; while :; do sleep 0.05; done",
    ]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    stop(&fixture, &mine, 1).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
}

/// A second stop with a shorter grace period counts.
#[tokio::test]
async fn shorter_grace_counts() {
    let fixture = Fixture::new();
    let mine = order(&["trap '' TERM; echo on; while :; do sleep 0.05; done"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    stop(&fixture, &mine, 1000).await;
    stop(&fixture, &mine, 0).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
}

/// A job is stopped after its timeout.
#[tokio::test]
async fn timeout_stops_a_job() {
    let fixture = Fixture::new();
    let mut mine = order(&["trap 'echo over' TERM; echo on; while :; do sleep 0.05; done"]);
    // A busy host needs some of the timeout to start the shell, and some of the grace period to report it.
    (mine.timeout_seconds, mine.grace_seconds) = (Some(5), 5);
    let seen = run(&fixture, &mine).await;
    assert!(seen.text().starts_with("on\n") && seen.text().contains("over\n"), "{}", seen.text());
    seen.assert_end(JobEnd::TimedOut);
    mine = order(&["echo quick"]);
    mine.timeout_seconds = Some(u64::MAX);
    run(&fixture, &mine).await.assert_end(JobEnd::Exited { code: 0 });
}

/// A fork bomb is killed.
#[tokio::test]
async fn fork_bomb_ends() {
    if !is_root() {
        return;
    }
    let user = unique_uid();
    let fixture = Fixture::of(Root::new(user, user));
    // Bounded, to protect the host; each process keeps trying to start more. A shell would end if it could not fork.
    let mine = order(&["ulimit -u 60", "echo on", "exec perl -e 'fork while 1'"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    eventually("there are many", || processes(&mine).len() > 30).await;
    stop(&fixture, &mine, 0).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
}

/// A job whose supervisor is killed has ended.
#[tokio::test]
async fn killed_supervisor_ends_the_job() {
    let fixture = Fixture::new();
    let mine = order(&["(sleep 1000 &); env -i sleep 1000 & echo on; sleep 1000"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    let supervisor = supervisor_of(&mine.job);
    rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    finish(&mut link).await.assert_end(JobEnd::Killed { signal: 9 });
    is_gone(&mine).await;
    done(link).await;
}

fn supervisor_of(job: &str) -> rustix::process::Pid {
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_it = |pid: &String| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("job-supervisor") && line.contains(job)
    };
    let found: Vec<String> = pids.filter(is_it).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    rustix::process::Pid::from_raw(found[0].parse().unwrap()).unwrap()
}

/// A job whose supervisor is frozen can still be stopped.
#[tokio::test]
#[ignore = "it takes more than a minute until a supervisor counts as stuck"]
async fn stopped_supervisor_does_not_block_a_stop() {
    let fixture = Fixture::new();
    let mine = order(&["echo on; sleep 1000"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    let supervisor = supervisor_of(&mine.job);
    rustix::process::kill_process(supervisor, rustix::process::Signal::STOP).unwrap();
    stop(&fixture, &mine, 0).await;
    tokio::time::timeout(DEADLINE * 4, link.0.read()).await.expect("it ends").unwrap();
    is_gone(&mine).await;
    let mut link = super::follow(&fixture, &mine, 0).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    done(link).await;
}

/// A job with directories of any depth can be forgotten.
#[tokio::test]
async fn forget_removes_any_depth() {
    let fixture = Fixture::new();
    let mine = order(&["echo on"]);
    run(&fixture, &mine).await;
    let working = fixture.root.home().join("jobs").join(&mine.job);
    let _removed = RemovedByAnother(working.clone());
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mut below = rustix::fs::open(&working, flags, rustix::fs::Mode::empty()).unwrap();
    // More than the maximum number of open descriptors.
    for _ in 0..2_000 {
        rustix::fs::mkdirat(&below, "d", rustix::fs::Mode::RWXU).unwrap();
        below = rustix::fs::openat(&below, "d", flags, rustix::fs::Mode::empty()).unwrap();
    }
    assert_eq!(fixture.ask(Purpose::ForgetJob { job: mine.job.clone() }).await.unwrap().0, Reply::Ready);
    assert!(!working.exists());
}

/// A directory that is removed even if the guest fails to; the library would recurse as deep as the directories.
struct RemovedByAnother(std::path::PathBuf);

impl Drop for RemovedByAnother {
    fn drop(&mut self) {
        let _ = std::process::Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

/// Anything in place of an order file does not block the guest.
#[tokio::test]
async fn replaced_order_does_not_block() {
    let fixture = Fixture::new();
    let mine = order(&["echo on; until [ -e ~/go ]; do sleep 0.02; done"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    let written = fixture.root.path().join("var/lib/tarn/jobs").join(&mine.job).join("1/order.json");
    std::fs::remove_file(&written).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &written, pipe, rustix::fs::Mode::RUSR, 0).unwrap();
    std::fs::write(fixture.root.home().join("go"), "").unwrap();
    finish(&mut link).await.assert_end(JobEnd::Exited { code: 0 });
    done(link).await;
    run(&fixture, &order(&["echo others go on"])).await.assert_end(JobEnd::Exited { code: 0 });
}

/// A forgotten job leaves nothing behind.
#[tokio::test]
async fn forget_leaves_nothing() {
    let fixture = Fixture::new();
    let mut mine = order(&["mkdir -p deep/er; touch deep/er/file; chmod 0 deep; echo on; sleep 1000"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    let Reply::Jobs(known) = fixture.ask(Purpose::ListJobs).await.unwrap().0 else { panic!("no list") };
    assert_eq!(known.len(), 1);
    assert_eq!(
        (known[0].job.as_str(), known[0].attempts.as_slice(), known[0].running),
        (mine.job.as_str(), &[1][..], true)
    );
    let forgetting = Purpose::ForgetJob { job: mine.job.clone() };
    assert_eq!(fixture.ask(forgetting.clone()).await.unwrap().0, Reply::Ready);
    assert!(processes(&mine).is_empty());
    for place in ["home/tester/jobs", "var/lib/tarn/jobs", "run/tarn-jobs"] {
        assert_eq!(std::fs::read_dir(fixture.root.path().join(place)).unwrap().count(), 0, "{place}");
    }
    assert_eq!(fixture.ask(Purpose::ListJobs).await.unwrap().0, Reply::Jobs(Vec::new()));
    assert_eq!(fixture.ask(super::following(&mine, 0)).await.unwrap().0, Reply::NoSuchJob);
    assert_eq!(fixture.ask(forgetting).await.unwrap().0, Reply::Ready, "what is forgotten can be forgotten again");
    mine.commands = vec!["ls -A; echo again".into()];
    assert_eq!(run(&fixture, &mine).await.text(), "again\n");
}

/// A job that cannot be started reports why and leaves nothing behind.
#[tokio::test]
async fn failed_start_reports_and_leaves_nothing() {
    let fixture = Fixture::new();
    let jobs = fixture.root.home().join("jobs");
    std::os::unix::fs::symlink("/etc", &jobs).unwrap();
    let mine = order(&["echo never"]);
    let mut link = start(&fixture, &mine).await;
    let seen = finish(&mut link).await;
    assert!(matches!(seen.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{seen:?}");
    std::fs::remove_file(jobs).unwrap();
    let mut large = order(&["echo never"]);
    large.environment = vec![("LARGE".into(), "x".repeat(200 << 10))];
    let mut link = start(&fixture, &large).await;
    let seen = finish(&mut link).await;
    assert!(matches!(seen.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{seen:?}");
    assert_eq!(fixture.ask(super::following(&large, 0)).await.unwrap().0, Reply::NoSuchJob);
    assert_eq!(run(&fixture, &mine).await.text(), "never\n");
    for job in ["j-../../../../x", "", "j-ABCDEFGHIJKL"] {
        let order = tarn_link::JobOrder { job: job.into(), ..mine.clone() };
        let refused = fixture.ask(Purpose::RunJob(Box::new(order))).await.unwrap_err();
        assert!(refused.to_string().contains("not a job id"), "{refused}");
    }
}

/// A later attempt replaces an earlier one.
#[tokio::test]
async fn later_attempt_replaces_earlier_one() {
    let fixture = Fixture::new();
    let mut mine = order(&["echo first > file; echo on; sleep 1000"]);
    let mut first = start(&fixture, &mine).await;
    read_text(&mut first, "on").await;
    let earlier = mine.clone();
    mine.attempt = 2;
    mine.commands = vec!["cat file".into()];
    let mut second = start(&fixture, &mine).await;
    let seen = finish(&mut second).await;
    assert_eq!(seen.text(), "first\n", "the directory stays");
    finish(&mut first).await.assert_end(JobEnd::Stopped);
    let mut again = start(&fixture, &earlier).await;
    let refused = tokio::time::timeout(DEADLINE, finish(&mut again)).await.unwrap();
    assert!(matches!(refused.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{refused:?}");
}
