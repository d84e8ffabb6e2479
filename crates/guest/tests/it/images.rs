//! Instances of container images, as people, peers and jobs find them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tarn_link::{Answer, Configuration, FromGuest, FromJob, Image, JobEnd, Program, Pty, Purpose, Session};

use crate::jobs;
use crate::lab::{Lab, Root, SOMEBODY, finish, is_root};

/// A root of an image: whoever runs the tests is its user, and what is named is there.
fn root(programs: &[&str]) -> Root {
    let root = Root::new(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for program in programs {
        let path = root.path().join(program);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::create_dir(root.path().join("work")).unwrap();
    root
}

fn image() -> Image {
    let variables = [("PATH", "/bin:/usr/bin"), ("WORD", "image"), ("HOME", "/elsewhere"), ("LD_LIBRARY_PATH", "/lib")];
    Image {
        environment: variables.map(|(name, value)| (name.into(), value.into())).to_vec(),
        user: Some("tester".into()),
        directory: Some("/work".into()),
    }
}

#[tokio::test]
async fn programs_find_what_the_image_says() {
    let lab = Lab::of_image(root(&["bin/bash"]), Some(image()));
    let said = lab.run("echo $PATH $WORD $LD_LIBRARY_PATH; pwd; echo $HOME $USER $SHELL").await.text();
    let home = lab.root.home();
    let work = lab.root.path().join("work");
    let wanted = format!("/bin:/usr/bin image /lib\n{}\n{} tester /bin/bash\n", work.display(), home.display());
    assert_eq!(said, wanted);
    // The client comes before the image, and the guest before the client.
    let environment = [("WORD", "client"), ("HOME", "/mine")].map(|(name, value)| (name.into(), value.into())).to_vec();
    let program = Program::Exec("echo $WORD $HOME".into());
    let mut link = lab.begin(Session { program, environment, ..Session::default() }).await;
    assert_eq!(finish(&mut link).await.text(), format!("client {}\n", home.display()));
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_home() {
    let image = Image { directory: Some("/nowhere".into()), ..image() };
    let lab = Lab::of_image(root(&["bin/sh"]), Some(image));
    assert_eq!(lab.run("pwd; echo $SHELL").await.text(), format!("{}\n/bin/sh\n", lab.root.home().display()));
}

#[tokio::test]
async fn without_a_shell_a_login_says_so_and_programs_run() {
    let lab = Lab::of_image(root(&[]), Some(image()));
    for pty in [None, Some(Pty::default())] {
        let mut link = lab.begin(Session { program: Program::Shell, pty, ..Session::default() }).await;
        let outcome = finish(&mut link).await;
        assert_eq!(outcome.end, FromGuest::Exited { code: 127 });
        let said = [outcome.output, outcome.errors].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("this image has no shell") && said.contains("ssh HOST /path/to/program"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(lab.run("echo 'two words' $HOME \"a\\\"b\"").await.text(), "two words $HOME a\"b\n");
    assert_eq!(lab.run("/bin/pwd").await.text(), format!("{}\n", lab.root.path().join("work").display()));
    for (line, why) in
        [("no-such-program x", "no-such-program: there is no such program"), ("echo 'a", "quote"), ("", "no shell")]
    {
        let outcome = lab.run(line).await;
        assert_eq!(outcome.end, FromGuest::Exited { code: 127 }, "{line}");
        assert!(String::from_utf8_lossy(&outcome.errors).contains(why), "{line}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_user_whom_nobody_wrote_down_can_log_in() {
    if !is_root() {
        return;
    }
    let root = root(&["bin/bash"]);
    for name in ["etc/passwd", "etc/group"] {
        std::fs::remove_file(root.path().join(name)).unwrap();
    }
    let user = Some(format!("{SOMEBODY}:7"));
    let lab = Lab::of_image(root, Some(Image { user, environment: Vec::new(), directory: None }));
    assert_eq!(lab.run("id -u; id -G; echo $USER").await.text(), format!("{SOMEBODY}\n7\n{SOMEBODY}\n"));
}

#[tokio::test]
async fn hostile_files_keep_nobody_out() {
    let root = root(&["bin/bash"]);
    // What everything needs is a link to nowhere, a file, or somebody's.
    std::os::unix::fs::symlink("nowhere", root.path().join("var")).unwrap();
    std::fs::remove_dir_all(root.path().join("etc")).unwrap();
    std::os::unix::fs::symlink("usr/etc", root.path().join("etc")).unwrap();
    std::fs::create_dir_all(root.path().join("usr/etc")).unwrap();
    let many: String = (0..100_000).map(|n| format!("u{n}:x:{n}:{n}::/:/bin/sh\n")).collect();
    root.write("etc/passwd", &many);
    let many: String = (0..100_000).map(|n| format!("g{n}:x:{n}:u1,u2\n")).collect();
    root.write("etc/group", &many);
    std::os::unix::fs::symlink("/etc/passwd", root.path().join("usr/etc/hosts")).unwrap();
    let lab =
        Lab::of_image(root, Some(Image { user: Some(rustix::process::getuid().as_raw().to_string()), ..image() }));
    assert_eq!(lab.run("echo in").await.text(), "in\n");
    let told = Configuration { hosts: vec![("c-1-0".into(), "10.1.0.2".into())], ..Configuration::default() };
    let (answer, _) = lab.ask(Purpose::Configure(Box::new(told))).await.unwrap();
    assert_eq!(answer, Answer::Ready);
    assert!(lab.root.read("etc/hosts").contains("10.1.0.2\tc-1-0"), "the link was replaced");
    assert!(!std::fs::read_to_string("/etc/passwd").unwrap().contains("c-1-0"));
    let state = lab.root.path().join("var/lib/tarn").metadata().unwrap();
    assert_eq!(state.mode() & 0o777, 0o700);
}

#[tokio::test]
async fn what_the_guest_keeps_is_its_own_whatever_the_image_had_there() {
    let root = root(&["bin/bash"]);
    std::fs::create_dir_all(root.path().join("var/lib")).unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, root.path().join("var/lib/tarn")).unwrap();
    let lab = Lab::of_image(root, Some(image()));
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    let Lab { root, .. } = lab;
    std::fs::set_permissions(root.path().join("var/lib/tarn"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let lab = Lab::of_image(root, Some(image()));
    let own = lab.root.path().join("var/lib/tarn").symlink_metadata().unwrap();
    assert_eq!((own.is_dir(), own.mode() & 0o777), (true, 0o700));
    assert!(Path::new(&lab.root.path().join("var/lib/tarn/guest.json")).exists());
}

#[tokio::test]
async fn jobs_have_the_images_environment_and_need_a_shell() {
    let lab = Lab::of_image(root(&["bin/sh"]), Some(image()));
    let order = jobs::order(&["echo $WORD $USER; pwd"]);
    let seen = jobs::run(&lab, &order).await;
    let place = lab.root.home().join("jobs").join(&order.job);
    assert_eq!(seen.text(), format!("image tester\n{}\n", place.display()));
    seen.assert_end(JobEnd::Exited { code: 0 });

    let lab = Lab::of_image(root(&[]), Some(image()));
    let mut link = jobs::start(&lab, &jobs::order(&["true"])).await;
    let Some(FromJob::NotStarted { reason, may_work_later }) = jobs::finish(&mut link).await.end else { panic!() };
    assert!(reason.contains("the image has no shell") && !may_work_later, "{reason}");
}
