//! How attempts end, and that nothing is left of them.

use tarn_link::{Answer, FromJob, JobEnd, Purpose};

use super::{done, finish, is_gone, order, processes, read_text, run, start, stop};
use crate::lab::{DEADLINE, Lab, Root, eventually, is_root, nobody_elses};

#[tokio::test]
async fn a_job_says_what_it_has_to_say_and_ends_with_its_code() {
    let lab = Lab::new();
    let seen = run(&lab, &order(&["echo hi"])).await;
    assert_eq!(seen.output, b"hi\n");
    seen.assert_end(JobEnd::Exited { code: 0 });
    let seen = run(&lab, &order(&["echo one", "(exit 7)", "echo never"])).await;
    assert_eq!(seen.output, b"one\n");
    seen.assert_end(JobEnd::Exited { code: 7 });
    run(&lab, &order(&["ulimit -c 0; kill -SEGV $$"])).await.assert_end(JobEnd::Killed { signal: 11 });
    run(&lab, &order(&["ulimit -c 0; sh -c 'kill -KILL $$'"])).await.assert_end(JobEnd::Exited { code: 137 });
}

#[tokio::test]
async fn whoever_the_commands_leave_behind_ends_with_them() {
    let Some(lab) = Lab::of_somebody() else { return };
    let mine = order(&[
        "(setsid sleep 1000 >/dev/null 2>&1 &)",
        "sleep 1000 & disown",
        "setsid sh -c 'trap \"\" TERM HUP; (sleep 1000 &) ; sleep 1000' & sleep 0.1; echo end",
    ]);
    let mut link = start(&lab, &mine).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.output, b"end\n");
    seen.assert_end(JobEnd::Exited { code: 0 });
    assert!(processes(&mine).is_empty(), "an attempt has ended when nothing is left of it");
    done(link).await;
}

#[tokio::test]
async fn who_is_asked_to_end_may_end_in_order() {
    let lab = Lab::new();
    let mine = order(&["trap 'echo saving; exit 0' TERM; sleep 1000 & echo on; wait"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    stop(&lab, &mine, 30).await;
    let seen = finish(&mut link).await;
    assert_eq!(seen.text(), "saving\n");
    seen.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
    stop(&lab, &mine, 0).await;
    done(link).await;
}

#[tokio::test]
async fn who_does_not_want_to_end_is_killed_after_the_grace() {
    let lab = Lab::new();
    let mine = order(&[
        "trap '' TERM",
        "(trap '' TERM; while :; do sleep 0.05; done) & echo on; while :; do sleep 0.05; done",
    ]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    stop(&lab, &mine, 1).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
}

#[tokio::test]
async fn a_shorter_grace_counts() {
    let lab = Lab::new();
    let mine = order(&["trap '' TERM; echo on; while :; do sleep 0.05; done"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    stop(&lab, &mine, 1000).await;
    stop(&lab, &mine, 0).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
}

#[tokio::test]
async fn a_job_whose_time_is_over_is_stopped() {
    let lab = Lab::new();
    let mut mine = order(&["trap 'echo over' TERM; echo on; while :; do sleep 0.05; done"]);
    // A busy machine needs some of the time to start the shell, and some of the grace to let it say so.
    (mine.timeout_seconds, mine.grace_seconds) = (Some(5), 5);
    let seen = run(&lab, &mine).await;
    assert!(seen.text().starts_with("on\n") && seen.text().contains("over\n"), "{}", seen.text());
    seen.assert_end(JobEnd::TimedOut);
    mine = order(&["echo quick"]);
    mine.timeout_seconds = Some(u64::MAX);
    run(&lab, &mine).await.assert_end(JobEnd::Exited { code: 0 });
}

#[tokio::test]
async fn processes_without_end_end() {
    if !is_root() {
        return;
    }
    let user = nobody_elses();
    let lab = Lab::of(Root::new(user, user));
    // Bounded, so that the machine of the test stays in one piece; each tries again and again to start more. A shell would end
    // when it may start nobody.
    let mine = order(&["ulimit -u 60", "echo on", "exec perl -e 'fork while 1'"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    eventually("there are many", || processes(&mine).len() > 30).await;
    stop(&lab, &mine, 0).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    assert!(processes(&mine).is_empty());
}

#[tokio::test]
async fn a_job_whose_supervisor_is_killed_is_over() {
    let lab = Lab::new();
    let mine = order(&["(sleep 1000 &); env -i sleep 1000 & echo on; sleep 1000"]);
    let mut link = start(&lab, &mine).await;
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

#[tokio::test]
#[ignore = "it takes more than a minute until a supervisor counts as stuck"]
async fn a_job_whose_supervisor_is_stopped_ends_when_it_should() {
    let lab = Lab::new();
    let mine = order(&["echo on; sleep 1000"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    let supervisor = supervisor_of(&mine.job);
    rustix::process::kill_process(supervisor, rustix::process::Signal::STOP).unwrap();
    stop(&lab, &mine, 0).await;
    tokio::time::timeout(DEADLINE * 4, link.0.read()).await.expect("it ends").unwrap();
    is_gone(&mine).await;
    let mut link = super::follow(&lab, &mine, 0).await;
    finish(&mut link).await.assert_end(JobEnd::Stopped);
    done(link).await;
}

#[tokio::test]
async fn a_forgotten_job_may_have_any_depth() {
    let lab = Lab::new();
    let mine = order(&["echo on"]);
    run(&lab, &mine).await;
    let working = lab.root.home().join("jobs").join(&mine.job);
    let _removed = RemovedByAnother(working.clone());
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let mut below = rustix::fs::open(&working, flags, rustix::fs::Mode::empty()).unwrap();
    // More than there may be open at a time.
    for _ in 0..2_000 {
        rustix::fs::mkdirat(&below, "d", rustix::fs::Mode::RWXU).unwrap();
        below = rustix::fs::openat(&below, "d", flags, rustix::fs::Mode::empty()).unwrap();
    }
    assert_eq!(lab.ask(Purpose::ForgetJob { job: mine.job.clone() }).await.unwrap().0, Answer::Ready);
    assert!(!working.exists());
}

/// A directory that is removed even if the guest failed: what the library offers for that goes as deep as directories do.
struct RemovedByAnother(std::path::PathBuf);

impl Drop for RemovedByAnother {
    fn drop(&mut self) {
        let _ = std::process::Command::new("rm").arg("-rf").arg(&self.0).status();
    }
}

#[tokio::test]
async fn whatever_lies_in_the_place_of_an_order_holds_nobody_up() {
    let lab = Lab::new();
    let mine = order(&["echo on; until [ -e ~/go ]; do sleep 0.02; done"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    let written = lab.root.path().join("var/lib/tarn/jobs").join(&mine.job).join("1/order.json");
    std::fs::remove_file(&written).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &written, pipe, rustix::fs::Mode::RUSR, 0).unwrap();
    std::fs::write(lab.root.home().join("go"), "").unwrap();
    finish(&mut link).await.assert_end(JobEnd::Exited { code: 0 });
    done(link).await;
    run(&lab, &order(&["echo others go on"])).await.assert_end(JobEnd::Exited { code: 0 });
}

#[tokio::test]
async fn a_forgotten_job_leaves_nothing() {
    let lab = Lab::new();
    let mut mine = order(&["mkdir -p deep/er; touch deep/er/file; chmod 0 deep; echo on; sleep 1000"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    let Answer::Jobs(known) = lab.ask(Purpose::ListJobs).await.unwrap().0 else { panic!("no list") };
    assert_eq!(known.len(), 1);
    assert_eq!(
        (known[0].job.as_str(), known[0].attempts.as_slice(), known[0].running),
        (mine.job.as_str(), &[1][..], true)
    );
    let forgetting = Purpose::ForgetJob { job: mine.job.clone() };
    assert_eq!(lab.ask(forgetting.clone()).await.unwrap().0, Answer::Ready);
    assert!(processes(&mine).is_empty());
    for place in ["home/tester/jobs", "var/lib/tarn/jobs", "run/tarn-jobs"] {
        assert_eq!(std::fs::read_dir(lab.root.path().join(place)).unwrap().count(), 0, "{place}");
    }
    assert_eq!(lab.ask(Purpose::ListJobs).await.unwrap().0, Answer::Jobs(Vec::new()));
    assert_eq!(lab.ask(super::following(&mine, 0)).await.unwrap().0, Answer::NoSuchJob);
    assert_eq!(lab.ask(forgetting).await.unwrap().0, Answer::Ready, "what is forgotten can be forgotten again");
    mine.commands = vec!["ls -A; echo again".into()];
    assert_eq!(run(&lab, &mine).await.text(), "again\n");
}

#[tokio::test]
async fn a_job_that_cannot_run_says_why_and_leaves_nothing() {
    let lab = Lab::new();
    let jobs = lab.root.home().join("jobs");
    std::os::unix::fs::symlink("/etc", &jobs).unwrap();
    let mine = order(&["echo never"]);
    let mut link = start(&lab, &mine).await;
    let seen = finish(&mut link).await;
    assert!(matches!(seen.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{seen:?}");
    std::fs::remove_file(jobs).unwrap();
    let mut large = order(&["echo never"]);
    large.environment = vec![("LARGE".into(), "x".repeat(200 << 10))];
    let mut link = start(&lab, &large).await;
    let seen = finish(&mut link).await;
    assert!(matches!(seen.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{seen:?}");
    assert_eq!(lab.ask(super::following(&large, 0)).await.unwrap().0, Answer::NoSuchJob);
    assert_eq!(run(&lab, &mine).await.text(), "never\n");
    for job in ["j-../../../../x", "", "j-ABCDEFGHIJKL"] {
        let order = tarn_link::JobOrder { job: job.into(), ..mine.clone() };
        let refused = lab.ask(Purpose::RunJob(Box::new(order))).await.unwrap_err();
        assert!(refused.to_string().contains("no job"), "{refused}");
    }
}

#[tokio::test]
async fn a_later_attempt_takes_the_place_of_an_earlier_one() {
    let lab = Lab::new();
    let mut mine = order(&["echo first > file; echo on; sleep 1000"]);
    let mut first = start(&lab, &mine).await;
    read_text(&mut first, "on").await;
    let earlier = mine.clone();
    mine.attempt = 2;
    mine.commands = vec!["cat file".into()];
    let mut second = start(&lab, &mine).await;
    let seen = finish(&mut second).await;
    assert_eq!(seen.text(), "first\n", "the directory stays");
    finish(&mut first).await.assert_end(JobEnd::Stopped);
    let mut again = start(&lab, &earlier).await;
    let refused = tokio::time::timeout(DEADLINE, finish(&mut again)).await.unwrap();
    assert!(matches!(refused.end, Some(FromJob::NotStarted { may_work_later: false, .. })), "{refused:?}");
}
